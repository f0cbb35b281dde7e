"""Training session: data, net, optimizers and plan of one training."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nearfar.core import Net, Plan, RandomKey, Recipe, RuntimeConfig, Sizes, TrainConfig, UsageError
from nearfar.core.ranks import broadcast_from_first_rank, get_world_size
from nearfar.core.recipe import Similarity
from nearfar.data.common.device_cache import cache_on_device
from nearfar.encoders import make_encoder, read_pretrained_config, resolve_encoder
from nearfar.train.compile_encoders import compile_encoders
from nearfar.train.encode import encode_all
from nearfar.train.optimizers import make_optimizer, reset_optimizer_state
from nearfar.train.process_group import select_rank_device
from nearfar.train.step import GradStep
from nearfar.train.sync_batch_norm import synchronize_batch_norm


def build_net(
    recipe: Recipe, config: TrainConfig, sizes: Sizes, init_tensors: Mapping[str, Tensor] | None = None, load_weights: bool = True
) -> Net:
    """Build the net of a run before its first step.

    The result depends only on the arguments.

    Args:
        recipe: recipe of the run.
        config: settings of the training.
        sizes: sizes of the data.
        init_tensors: state of the net to begin from, by name, as in a checkpoint. Its encoders are copied.
        load_weights: False if the caller replaces all weights. Those of a pre-trained encoder are then not
            read.

    Raises:
        UsageError: if an encoder is unknown, or if `init_tensors` do not fit.
    """
    with RandomKey(config.seed)("init").fork_torch_rng():
        encoders = {name: make_encoder(*_tower(recipe, config, sizes, name), load_weights) for name in get_encoder_names(recipe)}
        if init_tensors is not None:
            for name, encoder in encoders.items():
                if name not in recipe.towers or _part(init_tensors, name):
                    _take(encoder, init_tensors, name, config)
        net = recipe.build(sizes, **encoders)
    if init_tensors is not None:
        for mine, theirs in recipe.inherits.items():
            _take(net.get_submodule(mine), init_tensors, theirs, config)
    net.sizes = dict(sizes)
    return net


def get_encoder_names(recipe: Recipe) -> list[str]:
    """Return the names of the encoders that a recipe's `build` takes."""
    return [name for name in inspect.signature(recipe.build).parameters if name != "sizes"]


def _tower(recipe: Recipe, config: TrainConfig, sizes: Sizes, name: str) -> tuple[str, Sizes]:
    """Return the name of an encoder and the sizes that it is built from."""
    part = recipe.towers.get(name)
    return (config.encoder, sizes) if part is None else (getattr(recipe, name), sizes[part])


def _part(init_tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in init_tensors.items() if key.startswith(f"{name}.")}


def _take(encoder: torch.nn.Module, init_tensors: Mapping[str, Tensor], name: str, config: TrainConfig) -> None:
    theirs = _part(init_tensors, name)
    if not theirs:
        has = ", ".join(dict.fromkeys(key.split(".")[0] for key in init_tensors))
        raise UsageError(f"--init-from {config.init_from}: its model has no {name} to start from, it has {has}")
    try:
        encoder.load_state_dict(theirs)
    except RuntimeError as e:
        raise UsageError(f"--init-from {config.init_from}: its {name} does not fit --encoder {config.encoder} on these data") from e


def resolve_train_config(recipe: Recipe, config: TrainConfig, net: Net, data: Any) -> TrainConfig:
    """Replace unset batch size and number of steps by numbers.

    Raises:
        UsageError: if the data are too few, or if the batch size is smaller than 2 or the number of ranks, or
            larger than the data.
    """
    n = recipe.similarity(net).count(data)
    if n < 1:
        raise UsageError(f"{data.source} is too small for {type(recipe).__name__}: there are too few samples for one step. Use more data")
    batch = config.batch_size or min(256, 1 << (n.bit_length() - 1))
    plan = Plan(n, batch, RandomKey(config.seed))
    if recipe.rowwise and batch < 2:
        raise UsageError(f"a batch of 1 has nothing to compare: {n} training samples are too few, or --batch-size is too small")
    if get_world_size() > 1 and not all(turn.rowwise for turn in recipe.phases()):
        raise UsageError(f"{type(recipe).__name__} embeds all rows at once: it runs on one rank, got {get_world_size()}")
    if batch < get_world_size():
        raise UsageError(f"--batch-size {batch} is too small for {get_world_size()} ranks: each needs at least one row")
    if not any(turn.trains for turn in recipe.phases()):
        if config.steps or config.epochs:
            raise UsageError(f"{type(recipe).__name__} is fitted in closed form and has no steps: leave out --steps and --epochs")
        return dataclasses.replace(config, batch_size=batch, steps=0)
    if config.steps == 0:
        raise UsageError(f"--steps must be at least 1: {type(recipe).__name__} trains in steps")
    steps = config.steps or max(1, round((config.epochs or 100) * plan.steps_per_epoch))
    return dataclasses.replace(config, batch_size=batch, steps=steps, epochs=None)


def check_chunk_size(net: Net, plan: Plan, chunk_size: int | None) -> None:
    """Raise `UsageError` if BatchNorm1d would see a chunk of one row.

    Batch normalization of vectors needs two rows at once, in every chunk of every rank.
    """
    if not chunk_size or not any(isinstance(m, torch.nn.BatchNorm1d) for m in net.modules()):
        return
    rows = plan.get_rows(0)
    if min(len(part) for r in range(get_world_size()) for part in rows.select_rank_share(r, get_world_size()).split(chunk_size)) < 2:
        raise UsageError(
            f"--chunk-size {chunk_size} leaves a chunk of one row, and batch normalization needs two: use another --chunk-size"
        )


def pick_device(name: str) -> torch.device:
    """Return the device of a name: auto, cpu, cuda or cuda:N.

    Of several ranks, each gets its own GPU.

    Raises:
        UsageError: if the device is unknown, is not supported or does not exist.
    """
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError as e:
        raise UsageError(f"--device {name!r} is unknown: use auto, cpu, cuda or cuda:N") from e
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name!r} is not supported: use auto, cpu, cuda or cuda:N")
    if get_world_size() > 1:
        return select_rank_device(device)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # kernels and CUDA graphs run on the current device
    return device


class TrainingSession:
    """State of a training in progress, which hooks receive.

    Only `net`, `optimizers` and `step` change during the training.
    """

    def __init__(
        self,
        recipe: Recipe,
        config: TrainConfig,
        runtime: RuntimeConfig,
        data: Any,
        device: torch.device,
        init_tensors: Mapping[str, Tensor] | None = None,
    ):
        self.recipe, self.runtime, self.device = recipe, runtime, device
        self.rng_key = RandomKey(config.seed)
        self.sizes = data.sizes()
        self.data = data if runtime.num_workers else cache_on_device(data, device)
        self.sizes |= read_pretrained_config(config.encoder)
        self.sizes |= {part: self.sizes[part] | read_pretrained_config(getattr(recipe, name)) for name, part in recipe.towers.items()}
        config = dataclasses.replace(config, encoder=resolve_encoder(config.encoder, self.sizes), image_size=self.sizes.get("size"))
        self.net = build_net(recipe, config, self.sizes, init_tensors).to(device)
        self.config = config = resolve_train_config(recipe, config, self.net, data)
        check_chunk_size(self.net, self.plan, runtime.chunk_size)
        # Chunks are normalized separately, on any number of ranks.
        if get_world_size() > 1 and not runtime.chunk_size:
            synchronize_batch_norm(self.net, device)
        if device.type == "cuda":
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if runtime.compile:
            compile_encoders(self.net)
        self.step = 0
        self.lr = 0.0
        self.phases = recipe.phases()
        self.optimizers: list[Optimizer] = [make_optimizer(self.net, turn.trains, config) for turn in self.phases if turn.trains]
        autocast = torch.bfloat16 if config.precision == "bf16" else None
        self.grad_steps = [
            GradStep(turn, self.net, self.rng_key, autocast, runtime.cuda_graph and not runtime.deterministic) for turn in self.phases
        ]
        self.metric_recorders: list[Callable[[dict[str, Any]], None]] = []
        self.interrupted = False
        """True after a signal. The loop then saves after the current step and ends."""
        self.signaled = False
        """True after a signal to this process. Of several ranks, all are interrupted after the same
        step, as soon as all know of the signal."""

    @property
    def steps(self) -> int:
        """Return the number of steps of the training."""
        assert self.config.steps is not None
        return self.config.steps

    @property
    def plan(self) -> Plan:
        """Return the plan of the rows of each step."""
        assert self.config.batch_size is not None
        return Plan(self.similarity().count(self.data), self.config.batch_size, self.rng_key)

    def similarity(self) -> Similarity:
        """Build the similarity of the recipe."""
        return self.recipe.similarity(self.net)

    def record_metrics(self, values: dict[str, Any]) -> None:
        """Pass metrics of the current step to all recorders.

        Recorders are the run folder, TensorBoard or a list.
        """
        for recorder in self.metric_recorders:
            recorder({"step": self.step, **values})

    def encode_all(self, tower: str = "encoder") -> Tensor:
        """Encode all training samples with a part of the net."""
        return encode_all(self.recipe, self.net, self.data, self.device, tower=tower)

    def refresh(self, epoch: int) -> None:
        """Refresh the recipe before an epoch.

        The recipe clusters, mines or fits. The optimizers' state of parameters that it re-initialized is set
        to zero.
        """
        with torch.no_grad():
            anew = self.recipe.refresh(self.net, self.data, self.encode_all, self.rng_key("refresh", epoch), epoch)
        for optimizer in self.optimizers:
            reset_optimizer_state(optimizer, self.net, anew)
        broadcast_from_first_rank(self.net.state_dict().values())  # GPUs may add in different orders

"""Everything a training needs, put together once: data, net, optimizers, plan."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nearfar.core import Key, Machine, Net, Plan, Recipe, Run, Sizes, UsageError
from nearfar.core.ranks import copy_from_first, world
from nearfar.core.recipe import Similarity
from nearfar.data.common.on_device import on_device
from nearfar.encoders import make_encoder, remembered, resolve_encoder
from nearfar.train.compile_encoders import compile_encoders
from nearfar.train.encode import encode_all
from nearfar.train.launch import own_device
from nearfar.train.optimizers import forget, make_optimizer
from nearfar.train.step import GradStep
from nearfar.train.sync_batch_norm import synchronise


def build_net(recipe: Recipe, run: Run, sizes: Sizes, donor: Mapping[str, Tensor] | None = None, weights: bool = True) -> Net:
    """The net of a run before its first step: a pure function of recipe, run and sizes, and of a donor's encoders if one is given.

    `donor`: the state of the net to begin from, by name, as a checkpoint holds it.
    `weights=False`: all of them will be replaced, so that those of a pre-trained encoder need not be read.
    """
    with Key(run.seed)("init").seeded():
        encoders = {name: make_encoder(*_tower(recipe, run, sizes, name), weights) for name in encoder_names(recipe)}
        if donor is not None:
            for name, encoder in encoders.items():
                if name not in recipe.towers or _part(donor, name):
                    _take(encoder, donor, name, run)
        net = recipe.build(sizes, **encoders)
    if donor is not None:
        for mine, theirs in recipe.inherits.items():
            _take(net.get_submodule(mine), donor, theirs, run)
    net.sizes = dict(sizes)
    return net


def encoder_names(recipe: Recipe) -> list[str]:
    """The encoders that a recipe builds its net of."""
    return [name for name in inspect.signature(recipe.build).parameters if name != "sizes"]


def _tower(recipe: Recipe, run: Run, sizes: Sizes, name: str) -> tuple[str, Sizes]:
    """Which encoder is wanted, and what it is built from."""
    part = recipe.towers.get(name)
    return (run.encoder, sizes) if part is None else (getattr(recipe, name), sizes[part])


def _part(donor: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in donor.items() if key.startswith(f"{name}.")}


def _take(encoder: torch.nn.Module, donor: Mapping[str, Tensor], name: str, run: Run) -> None:
    theirs = _part(donor, name)
    if not theirs:
        has = ", ".join(dict.fromkeys(key.split(".")[0] for key in donor))
        raise UsageError(f"--init {run.init}: its net has no {name} to begin from, it has {has}")
    try:
        encoder.load_state_dict(theirs)
    except RuntimeError as e:
        raise UsageError(f"--init {run.init}: its {name} does not fit --encoder {run.encoder} on these data") from e


def resolve(recipe: Recipe, run: Run, net: Net, data: Any) -> Run:
    """The run with batch and length as numbers; refuses a batch larger than the data, or smaller than the ranks."""
    n = recipe.similarity(net).count(data)
    if n < 1:
        raise UsageError(f"{data.source} is too small for {type(recipe).__name__}: there is nothing to make a step of. Give more data")
    batch = run.batch or min(256, 1 << (n.bit_length() - 1))
    plan = Plan(n, batch, Key(run.seed))
    if recipe.rowwise and batch < 2:
        raise UsageError(f"a batch of 1 has nothing to compare: {n} training samples are too few, or --batch is too small")
    if world() > 1 and not all(turn.rowwise for turn in recipe.turns()):
        raise UsageError(f"{type(recipe).__name__} embeds all rows at once: it runs on one rank, and here are {world()}")
    if batch < world():
        raise UsageError(f"--batch {batch} is too small for {world()} ranks: each needs a row at least")
    if not any(turn.trains for turn in recipe.turns()):
        if run.steps or run.epochs:
            raise UsageError(f"{type(recipe).__name__} is fitted in closed form and has no steps: leave out --steps and --epochs")
        return dataclasses.replace(run, batch=batch, steps=0)
    if run.steps == 0:
        raise UsageError(f"--steps must be at least 1: {type(recipe).__name__} learns by steps")
    steps = run.steps or max(1, round((run.epochs or 100) * plan.steps_per_epoch))
    return dataclasses.replace(run, batch=batch, steps=steps, epochs=None)


def refuse_lone_rows(net: Net, plan: Plan, chunk: int | None) -> None:
    """Batch normalisation of vectors needs two rows at once: no chunk of any rank may have only one."""
    if not chunk or not any(isinstance(m, torch.nn.BatchNorm1d) for m in net.modules()):
        return
    rows = plan.rows(0)
    if min(len(part) for r in range(world()) for part in rows.share(r, world()).chunks(chunk)) < 2:
        raise UsageError(f"--chunk {chunk} leaves a chunk of one row, and batch normalisation needs two: use another --chunk")


def pick_device(name: str) -> torch.device:
    """The device of that name; of several ranks each has its own."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    except RuntimeError as e:
        raise UsageError(f"--device {name!r} is unknown: use auto, cpu, cuda or cuda:N") from e
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name!r} is not supported: use auto, cpu, cuda or cuda:N")
    if world() > 1:
        return own_device(device)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # kernels and recorded steps run on the current device
    return device


class Session:
    """A training in progress. Hooks receive it; `net`, `optimizers` and `step` are all that changes."""

    def __init__(
        self, recipe: Recipe, run: Run, machine: Machine, data: Any, device: torch.device, donor: Mapping[str, Tensor] | None = None
    ):
        self.recipe, self.machine, self.device = recipe, machine, device
        self.key = Key(run.seed)
        self.sizes = data.sizes()
        self.data = data if machine.workers else on_device(data, device)
        self.sizes |= remembered(run.encoder)
        self.sizes |= {part: self.sizes[part] | remembered(getattr(recipe, name)) for name, part in recipe.towers.items()}
        run = dataclasses.replace(run, encoder=resolve_encoder(run.encoder, self.sizes), image_size=self.sizes.get("size"))
        self.net = build_net(recipe, run, self.sizes, donor).to(device)
        self.run = run = resolve(recipe, run, self.net, data)
        refuse_lone_rows(self.net, self.plan, machine.chunk)
        if world() > 1 and not machine.chunk:  # chunks are normalised by themselves, on ranks as on one
            synchronise(self.net, device)
        if device.type == "cuda":
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if machine.compile:
            compile_encoders(self.net)
        self.step = 0
        self.lr = 0.0
        self.turns = recipe.turns()
        self.optimizers: list[Optimizer] = [make_optimizer(self.net, turn.trains, run) for turn in self.turns if turn.trains]
        autocast = torch.bfloat16 if run.precision == "bf16" else None
        self.grad_steps = [GradStep(turn, self.net, self.key, autocast, machine.graph and not machine.deterministic) for turn in self.turns]
        self.recorders: list[Callable[[dict[str, Any]], None]] = []
        self.interrupted = False
        """Set by a signal: the loop saves after the step it is in, and ends."""
        self.signalled = False
        """Set by a signal to this process: of several ranks all are interrupted after the same step, when all know of it."""

    @property
    def steps(self) -> int:
        assert self.run.steps is not None
        return self.run.steps

    @property
    def plan(self) -> Plan:
        assert self.run.batch is not None
        return Plan(self.similarity().count(self.data), self.run.batch, self.key)

    def similarity(self) -> Similarity:
        return self.recipe.similarity(self.net)

    def record(self, values: dict[str, Any]) -> None:
        """Hand metrics of the current step to whoever keeps them: the run folder, TensorBoard, a list."""
        for recorder in self.recorders:
            recorder({"step": self.step, **values})

    def encode_all(self, tower: str = "encoder") -> Tensor:
        return encode_all(self.recipe, self.net, self.data, self.device, tower=tower)

    def refresh(self, epoch: int) -> None:
        """Before an epoch: let the recipe cluster, mine or fit, and forget what it re-initialised."""
        with torch.no_grad():
            anew = self.recipe.refresh(self.net, self.data, self.encode_all, self.key("refresh", epoch), epoch)
        for optimizer in self.optimizers:
            forget(optimizer, self.net, anew)
        copy_from_first(self.net.state_dict().values())  # a GPU need not add in the same order everywhere

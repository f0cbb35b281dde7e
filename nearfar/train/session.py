"""Everything a training needs, put together once: data, net, optimizers, plan."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nearfar.core import Key, Machine, Net, Plan, Recipe, Run, Sizes, UsageError
from nearfar.core.recipe import Similarity
from nearfar.encoders import make_encoder, resolve_encoder
from nearfar.train.encode import encode_all
from nearfar.train.optim import forget, make_optimizer
from nearfar.train.step import GradStep


def build_net(recipe: Recipe, run: Run, sizes: Sizes, donor: Net | None = None) -> Net:
    """The net of a run before its first step: a pure function of recipe, run and sizes, and of a donor's encoders if one is given."""
    wanted = [name for name in inspect.signature(recipe.build).parameters if name != "sizes"]
    with Key(run.seed)("init").seeded():
        encoders = {name: make_encoder(run.encoder, sizes) for name in wanted}
        if donor is not None:
            for name, encoder in encoders.items():
                _take(encoder, donor, name, run)
        net = recipe.build(sizes, **encoders)
    net.sizes = dict(sizes)
    return net


def _take(encoder: torch.nn.Module, donor: Net, name: str, run: Run) -> None:
    try:
        encoder.load_state_dict(donor.get_submodule(name).state_dict())
    except (RuntimeError, AttributeError) as e:
        raise UsageError(f"--init {run.init}: its {name} does not fit --encoder {run.encoder} on these images") from e


def resolve(recipe: Recipe, run: Run, net: Net, data: Any) -> Run:
    """The run with batch and length as numbers; refuses a batch larger than the data."""
    n = recipe.similarity(net).count(data)
    batch = run.batch or min(256, 1 << (n.bit_length() - 1))
    plan = Plan(n, batch, Key(run.seed))
    if recipe.rowwise and batch < 2:
        raise UsageError(f"a batch of 1 has nothing to compare: {n} training samples are too few, or --batch is too small")
    steps = run.steps or max(1, round((run.epochs or 100) * plan.steps_per_epoch))
    return dataclasses.replace(run, batch=batch, steps=steps, epochs=None)


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise UsageError(f"--device {name!r} is unknown: use auto, cpu, cuda or cuda:N") from e
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name!r} is not supported: use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device


class Session:
    """A training in progress. Hooks receive it; `net`, `optimizers` and `step` are all that changes."""

    def __init__(self, recipe: Recipe, run: Run, machine: Machine, data: Any, device: torch.device, donor: Net | None = None):
        self.recipe, self.machine, self.data, self.device = recipe, machine, data, device
        self.key = Key(run.seed)
        self.sizes = data.sizes()
        run = dataclasses.replace(run, encoder=resolve_encoder(run.encoder, self.sizes), image_size=self.sizes.get("size"))
        self.net = build_net(recipe, run, self.sizes, donor).to(device)
        self.run = run = resolve(recipe, run, self.net, data)
        if device.type == "cuda":
            self.net = self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.step = 0
        self.lr = 0.0
        self.turns = recipe.turns()
        self.optimizers: list[Optimizer] = [make_optimizer(self.net, turn.trains, run) for turn in self.turns]
        autocast = torch.bfloat16 if run.precision == "bf16" else None
        self.grad_steps = [GradStep(turn, self.net, self.key, autocast, machine.compile) for turn in self.turns]
        self.recorders: list[Callable[[dict[str, Any]], None]] = []
        self.interrupted = False
        """Set by a signal: the loop saves after the step it is in, and ends."""

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

    def encode_all(self) -> Tensor:
        return encode_all(self.recipe, self.net, self.data, self.device)

    def refresh(self, epoch: int) -> None:
        """Before an epoch: let the recipe cluster, mine or fit, and forget what it re-initialised."""
        with torch.no_grad():
            anew = self.recipe.refresh(self.net, self.data, self.encode_all, self.key("refresh", epoch), epoch)
        for optimizer in self.optimizers:
            forget(optimizer, self.net, anew)

"""A method: frozen hyperparameters and functions on an explicit net, in the order of the paper.

    Plan -> Rows -> similarity.read -> .view -> embed -| cut: z |-> objective -> loss
    optimizer.step() -> update;   before each epoch: refresh

Before the cut rows are independent; after it the code sees the whole global batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from nearfar.core.card import Card
from nearfar.core.configs import RuntimeConfig, TrainConfig
from nearfar.core.errors import UsageError
from nearfar.core.field_checks import POSITIVE, check_fields, to_flag
from nearfar.core.net import Net
from nearfar.core.plan import Rows
from nearfar.core.random_key import RandomKey

RawBatch = Any
"""What `Similarity.read` made of some rows: tensors in dicts, lists or tuples."""
Views = dict[str, Any]
"""What the model sees, by name; the loop adds "id" and "slot"."""
Embeddings = dict[str, Tensor]
"""What `embed` returns, by name: the tensors at the cut."""
Sizes = Mapping[str, Any]
"""What the data say of themselves: n (samples), and channels, size, classes, entities, … where there are such."""


class Similarity(ABC):
    """The similarity distribution: draws what counts as alike (p+) and, where a method needs it, as unlike (p-)."""

    prefetches: ClassVar[bool] = False
    """Whether `read` is so much work that a thread does it beside the step before; numpy's work, which lets others run."""

    def count(self, data: Any) -> int:
        """How many things a plan draws from: samples, or classes, windows, nodes."""
        return len(data)

    @abstractmethod
    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        """Fetch raw samples; runs on the host, in a worker process if there are any."""

    @abstractmethod
    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        """Turn them into views, the whole batch at once, on the device of `raw`. Random numbers: `key`, by `rows.slots`."""


RESERVED_NAMES = {
    "config", "config_file", "help", "hooks", "out", "overwrite", "paper", "preset",
    "progress", "quiet", "recipe", "resume", "settings", "tiny", "verbose",
}  # fmt: skip
"""Words that mean something to `nearfar fit` and `nearfar.fit` themselves."""


@dataclass(frozen=True)
class Recipe(ABC):
    """A method. Subclasses are frozen dataclasses of hyperparameters and hold no state: state lives in `net`."""

    card: ClassVar[Card]
    rowwise: ClassVar[bool] = True
    """False where `embed` mixes rows (a whole graph): then one rank and no chunks."""
    trains: ClassVar[tuple[str, ...]] = ("",)
    """Prefixes of the parameters that the recipe's optimizer owns; none where `refresh` fits all there is: such a run has no steps."""
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Smallest and largest value of a hyperparameter, as in `{"nu": (0.0, float("inf"))}`; numbers that are not named here must be greater
    than 0."""
    uses_labels: ClassVar[bool] = False
    """Labels of the training split are handed to the recipe only if it asks for them here."""
    inherits: ClassVar[Mapping[str, str]] = {}
    """What `--init-from` copies besides the encoders: this net's part -> the donor's part."""
    towers: ClassVar[Mapping[str, str]] = {}
    """Encoders of `build` besides `--encoder`, which a hyperparameter of that name chooses -> the part of the sizes each is built from."""

    def __post_init__(self):
        _reject_reserved_names(type(self))
        check_fields(self, self.limits, default_limits=POSITIVE)

    @abstractmethod
    def similarity(self, net: Net) -> Similarity:
        """p+ and p-. Rebuilt after each refresh."""

    @abstractmethod
    def build(self, sizes: Sizes, *args: Any, **encoders: Any) -> Net:
        """The net, from one encoder for each keyword of the signature. Torch's generators are seeded around the call."""

    @abstractmethod
    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        """From views to the tensors the objective compares. Runs on a rank's or a chunk's rows alone."""

    @abstractmethod
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor | dict[str, Tensor]:
        """The loss of the global batch; of a dict, "loss" is minimised and the rest is logged."""

    def update(self, net: Net, z: Embeddings, progress: float) -> None:  # noqa: B027  (most methods need none)
        """After the optimizer: followers, queues, renormalisation, annealed buffers. `progress` in (0, 1]."""

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        """Before each epoch: cluster, mine, fit. `encode_all(tower)`: every sample. Returns the prefixes of re-initialised parameters."""
        return ()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """The representation that evaluation, index and server use. Bytes of images are floats from 0 to 1, as in the views of training."""
        if isinstance(x, Tensor) and x.dtype == torch.uint8:
            x = x.float() / 255
        return getattr(net, tower)(x)

    def phases(self) -> tuple[Recipe, ...]:
        """Recipes that alternate on one net, one optimizer each; usually this one alone."""
        return (self,)


def _reject_reserved_names(recipe: type[Recipe]) -> None:
    """Settings are told apart by their names alone: what is called like a field of a run would never reach the recipe."""
    for field in fields(recipe):  # type: ignore[arg-type]
        owner = next((kind.__name__ for kind in (TrainConfig, RuntimeConfig) if field.name in kind.__dataclass_fields__), None)
        if owner or field.name in RESERVED_NAMES:
            meaning = f"a setting of {owner}" if owner else "a word of `nearfar fit`"
            raise UsageError(
                f"{recipe.__name__} has a hyperparameter {field.name!r}, and {to_flag(field.name)} is {meaning}: give it another name"
            )

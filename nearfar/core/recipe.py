"""Base classes of methods: similarity distributions and recipes.

A recipe is a frozen dataclass of hyperparameters. Its methods are functions of an explicit net. Training
calls them in this order:

    Plan -> Rows -> similarity.read -> .view -> embed -| cut: z |-> objective -> loss
    optimizer.step() -> update;   before each epoch: refresh

Before the cut, rows are independent. After the cut, the code gets the whole global batch.
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
"""Result of `Similarity.read` for some rows: tensors in dicts, lists or tuples."""
Views = dict[str, Any]
"""Inputs of the model, by name. The training loop adds "id" and "slot"."""
Embeddings = dict[str, Tensor]
"""Result of `Recipe.embed`: the tensors at the cut, by name."""
Sizes = Mapping[str, Any]
"""Sizes of the dataset: n (samples) and, where they apply, channels, size, classes, entities, …"""


class Similarity(ABC):
    """Similarity distribution of a method.

    It draws similar samples (p+) and, if a method needs them, dissimilar samples (p-).
    """

    prefetches: ClassVar[bool] = False
    """True if a thread calls `read` during the step before. Suits slow reads in numpy, which releases the
    GIL."""

    def count(self, data: Any) -> int:
        """Return the number of units that a plan draws from: samples, classes, windows or nodes."""
        return len(data)

    @abstractmethod
    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        """Read the raw samples of `rows`.

        This method runs on the host, in a worker process if there are any.
        """

    @abstractmethod
    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        """Turn raw samples into views, the whole batch at once, on the device of `raw`.

        Draw random numbers from `rng_key` by `rows.slots`.
        """


RESERVED_NAMES = {
    "config", "config_file", "help", "hooks", "out", "overwrite", "paper", "preset",
    "progress", "quiet", "recipe", "resume", "settings", "tiny", "verbose",
}  # fmt: skip
"""Names that `nearfar fit` and `nearfar.fit` use themselves."""


@dataclass(frozen=True)
class Recipe(ABC):
    """Base class of methods.

    Subclasses are frozen dataclasses of hyperparameters and have no state. All state is in `net`.
    """

    card: ClassVar[Card]
    rowwise: ClassVar[bool] = True
    """False if `embed` mixes rows, as for a whole graph. Training then uses one rank and no chunks."""
    trains: ClassVar[tuple[str, ...]] = ("",)
    """Prefixes of the parameters that the optimizer of the recipe updates. Empty if `refresh` fits all
    parameters; such a run has no steps."""
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Smallest and largest value of hyperparameters, as in `{"nu": (0.0, float("inf"))}`. Other numbers must
    be greater than 0."""
    uses_labels: ClassVar[bool] = False
    """True if the recipe gets the labels of the training split."""
    inherits: ClassVar[Mapping[str, str]] = {}
    """Parts that `--init-from` copies in addition to the encoders: part of this net -> part of the source
    net."""
    towers: ClassVar[Mapping[str, str]] = {}
    """Encoders of `build` in addition to `--encoder` -> the part of the sizes that each is built from. A
    hyperparameter of the same name chooses the encoder."""

    def __post_init__(self):
        _reject_reserved_names(type(self))
        check_fields(self, self.limits, default_limits=POSITIVE)

    @abstractmethod
    def similarity(self, net: Net) -> Similarity:
        """Return the similarity distribution, p+ and p-.

        Training calls this method again after each refresh.
        """

    @abstractmethod
    def build(self, sizes: Sizes, *args: Any, **encoders: Any) -> Net:
        """Build the net from one encoder for each keyword of the signature.

        Torch's generators are seeded during the call.
        """

    @abstractmethod
    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        """Compute from views the tensors that the objective compares.

        The call gets only the rows of one rank or chunk.
        """

    @abstractmethod
    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor | dict[str, Tensor]:
        """Compute the loss of the global batch.

        If the result is a dict, "loss" is minimized and the other values are logged.
        """

    def update(self, net: Net, z: Embeddings, progress: float) -> None:  # noqa: B027  (most methods need none)
        """Change state after each optimizer step.

        Examples are to move momentum encoders, push queues, renormalize weights and anneal buffers.
        `progress` is the share of the training that is done, in (0, 1].
        """

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        """Change state before each epoch, for example to cluster, mine or fit.

        Args:
            net: Net to change.
            data: Training data.
            encode_all: Function that encodes every sample: `encode_all(tower)`.
            rng_key: Random key of this epoch.
            epoch: Number of the epoch.

        Returns:
            Prefixes of the parameters that were initialized again.
        """
        return ()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """Return the representation that evaluation, index and server use.

        uint8 images become floats from 0 to 1, as in the views of training.
        """
        if isinstance(x, Tensor) and x.dtype == torch.uint8:
            x = x.float() / 255
        return getattr(net, tower)(x)

    def phases(self) -> tuple[Recipe, ...]:
        """Return the recipes that alternate on one net, each with its own optimizer.

        The default is this recipe alone.
        """
        return (self,)


def _reject_reserved_names(recipe: type[Recipe]) -> None:
    """Raise `UsageError` if a hyperparameter has a reserved name.

    Settings are distinguished by name only. A setting with the name of a config field would never reach the
    recipe.
    """
    for field in fields(recipe):  # type: ignore[arg-type]
        owner = next((kind.__name__ for kind in (TrainConfig, RuntimeConfig) if field.name in kind.__dataclass_fields__), None)
        if owner or field.name in RESERVED_NAMES:
            meaning = f"a setting of {owner}" if owner else "an option of `nearfar fit`"
            raise UsageError(
                f"{recipe.__name__} has a hyperparameter {field.name!r}, and {to_flag(field.name)} is {meaning}: give it another name"
            )

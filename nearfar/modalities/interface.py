"""What evaluation and report need to know of a modality: its simplest baselines, its views, how samples are shown.

A modality for which the standard probes mean little measures itself: `Kind.measure`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nearfar.core import Key
from nearfar.data import Splits
from nearfar.evaluate import Features, Table
from nearfar.train.model import Trained

Pair = tuple[Tensor, Tensor]
"""Two views of the same samples, row by row."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """The table, and the features it was made from, for maps and neighbours."""

    table: Table
    splits: Splits
    chosen: Any
    """The training samples that features were taken from: all, or as many as the modality allows."""
    train: Tensor
    test: Tensor
    untrained: Tensor
    asked: Any = None
    """The samples that `test` and `untrained` are of, where they are not those of the test split."""


class Kind(ABC):
    """One modality."""

    def measure(self, trained: Trained, data: Any, progress: Progress | None) -> Evaluation | None:
        """An evaluation of its own; None: the standard probes. `data` are what the user named, None for those of the run."""
        return None

    def measures_itself(self, trained: Trained) -> bool:
        """Whether `measure` has an evaluation for this run."""
        return type(self).measure is not Kind.measure

    def chosen(self, train: Any, key: Key) -> Any:
        """The training samples that probes and neighbours use."""
        return train

    def unprobed(self, train: Any) -> str:
        """Why labels cannot be predicted from vectors, in words, where a label is not of what a vector is of."""
        return ""

    def baselines(self, train: Any, test: Any, views: Pair | None) -> dict[str, Features]:
        """What is known of the samples without learning anything: what the standard probes compare with."""
        return {}

    def encode(self, trained: Trained, views: Pair) -> Pair:
        """The representations of two views."""
        return encode(trained, views[0]), encode(trained, views[1])

    @abstractmethod
    def summary(self, train: Any) -> str:
        """The training data in a few words."""

    @abstractmethod
    def shown(self, data: Any) -> Callable[[Tensor], Any]:
        """Samples by their numbers, of any shape, as a report shows them."""

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[Any, Any]:
        """Two views as a report shows them."""
        return views


@torch.no_grad()
def encode(trained: Trained, view: Tensor, dropout: bool = False) -> Tensor:
    trained.net.train(dropout)
    try:
        return trained.recipe.encode(trained.net, view.to(trained.device)).float().cpu()
    finally:
        trained.net.eval()

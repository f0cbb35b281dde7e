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

from nearfar.core import RandomKey
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits
from nearfar.evaluate import Features, ResultTable
from nearfar.train.model import Model
from nearfar.train.model_data import ViewPair


@dataclass(frozen=True)
class Evaluation:
    """The table, and the features it was made from, for maps and neighbours."""

    table: ResultTable
    splits: Splits
    train_samples: Any
    """The training samples that features were taken from: all, or as many as the modality allows."""
    train_features: Tensor
    test_features: Tensor
    untrained_features: Tensor
    test_samples: Any = None
    """The samples that `test` and `untrained` are of, where they are not those of the test split."""


class Modality(ABC):
    """One modality."""

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation | None:
        """An evaluation of its own; None: the standard probes. `data` are what the user named, None for those of the run."""
        return None

    def has_own_evaluation(self, model: Model) -> bool:
        """Whether `measure` has an evaluation for this run."""
        return type(self).evaluate is not Modality.evaluate

    def select_train_samples(self, train: Any, rng_key: RandomKey) -> Any:
        """The training samples that probes and neighbours use."""
        return train

    def explain_skipped_probes(self, train: Any) -> str:
        """Why labels cannot be predicted from vectors, in words, where a label is not of what a vector is of."""
        return ""

    def compute_baselines(self, train: Any, test: Any, views: ViewPair | None) -> dict[str, Features]:
        """What is known of the samples without learning anything: what the standard probes compare with."""
        return {}

    def encode_views(self, model: Model, views: ViewPair) -> ViewPair:
        """The representations of two views."""
        return encode_view(model, views[0]), encode_view(model, views[1])

    @abstractmethod
    def summarize_data(self, train: Any) -> str:
        """The training data in a few words."""

    @abstractmethod
    def build_sample_renderer(self, data: Any) -> Callable[[Tensor], Any]:
        """Samples by their numbers, of any shape, as a report shows them."""

    def render_views(self, model: Model, views: ViewPair) -> tuple[Any, Any]:
        """Two views as a report shows them."""
        return views


@torch.no_grad()
def encode_view(model: Model, view: Tensor, dropout: bool = False) -> Tensor:
    model.net.train(dropout)
    try:
        return model.recipe.encode(model.net, view.to(model.device)).float().cpu()
    finally:
        model.net.eval()

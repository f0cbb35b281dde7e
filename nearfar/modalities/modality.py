"""Base class of modalities: baselines, views and rendered samples for evaluation and report.

Modalities for which the standard probes mean little have their own evaluation: `Modality.evaluate`.
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
    """Result table and its features, for maps and neighbors."""

    table: ResultTable
    splits: Splits
    train_samples: Any
    """Training samples of the features: all, or as many as the modality allows."""
    train_features: Tensor
    test_features: Tensor
    untrained_features: Tensor
    test_samples: Any = None
    """Samples of `test_features` and `untrained_features`, if they are not the test split."""


class Modality(ABC):
    """One kind of data."""

    def evaluate(self, model: Model, data: Any, progress: ProgressCallback | None) -> Evaluation | None:
        """Return the modality's own evaluation, or None for the standard probes.

        `data` are the data that the user named. None means the data of the run.
        """
        return None

    def has_own_evaluation(self, model: Model) -> bool:
        """Return True if `evaluate` has an evaluation for this run."""
        return type(self).evaluate is not Modality.evaluate

    def select_train_samples(self, train: Any, rng_key: RandomKey) -> Any:
        """Return the training samples for probes and neighbors."""
        return train

    def explain_skipped_probes(self, train: Any) -> str:
        """Return the reason why labels cannot be predicted from vectors.

        The result is empty if labels can be predicted. Probes are skipped if a label does not describe the encoded unit.
        """
        return ""

    def compute_baselines(self, train: Any, test: Any, views: ViewPair | None) -> dict[str, Features]:
        """Compute features without learning, as baselines of the standard probes."""
        return {}

    def encode_views(self, model: Model, views: ViewPair) -> ViewPair:
        """Return the representations of two views."""
        return encode_view(model, views[0]), encode_view(model, views[1])

    @abstractmethod
    def summarize_data(self, train: Any) -> str:
        """Describe the training data in a few words."""

    @abstractmethod
    def build_sample_renderer(self, data: Any) -> Callable[[Tensor], Any]:
        """Return a function that renders samples for a report, given their ids of any shape."""

    def render_views(self, model: Model, views: ViewPair) -> tuple[Any, Any]:
        """Render two views for a report."""
        return views


@torch.no_grad()
def encode_view(model: Model, view: Tensor, dropout: bool = False) -> Tensor:
    """Return the representations of one view in fp32 on the CPU, (n, d)."""
    model.net.train(dropout)
    try:
        return model.recipe.encode(model.net, view.to(model.device)).float().cpu()
    finally:
        model.net.eval()

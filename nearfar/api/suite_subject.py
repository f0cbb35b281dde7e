"""Subject of the suites of `nearfar eval`: a model with its features and labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.api.evaluate import TRAINED_ENCODER, measure_model
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits
from nearfar.evaluate import Features, ResultTable
from nearfar.modalities.image import flatten_pixels
from nearfar.train.model import Model

CONFIDENCE_Z = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""


@dataclass(frozen=True)
class SuiteRow:
    """One number of one system."""

    suite: str
    system: str
    """Measured representation, such as "trained encoder" or a baseline."""
    metric: str
    value: float
    low: float | None = None
    """Lower end of the 95 % interval, if it is known."""
    high: float | None = None
    """Upper end of the 95 % interval, if it is known."""
    seeds: int = 1
    """Number of trainings with different seeds behind the value."""


class Subject(ABC):
    """Model or index that suites measure.

    Suites add descriptions of their protocol to `protocol`.
    """

    title: str
    seed: int
    data: Any
    """Data that the user named with --data, or None."""
    model: Model | None
    protocol: dict[str, Any]
    has_table: bool
    """True if the modality's own evaluation gives a result table. An index has none."""

    @property
    @abstractmethod
    def table(self) -> ResultTable:
        """Result table of the modality's own evaluation, which is measured at the first access."""

    @property
    @abstractmethod
    def features(self) -> Mapping[str, Features]:
        """Features of each system by name."""

    @property
    @abstractmethod
    def splits(self) -> Splits:
        """Splits of the measured data."""

    @abstractmethod
    def get_test_labels(self) -> Tensor:
        """Return the labels of the test samples, (m,)."""

    @abstractmethod
    def explain_missing_labels(self) -> str:
        """Return the reason why suites with labels do not apply. Empty if they do."""

    def get_test_vectors(self) -> dict[str, Tensor]:
        """Return the vectors of the test samples for each system, (m, d) each."""
        return {system: torch.as_tensor(features.test).float() for system, features in self.features.items()}

    def get_text_encoders(self) -> dict[str, Callable[[list[str]], Tensor]]:
        """Return the untrained and the trained encoder of texts."""
        assert self.model is not None
        return {"untrained encoder": self.model.build_untrained().encode, TRAINED_ENCODER: self.model.encode}

    def explain_missing_texts(self, folder: str) -> str:
        """Return the reason why a suite on sentences does not apply. Empty if it does."""
        if self.model is None or "texts" not in self.model.modality.input_types or self.model.modality.reads_query_files():
            return "it encodes sentences: this is not a model of texts"
        return "" if self.data is not None else f"name {folder} with --data"

    def get_image_encoders(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return functions from uint8 images to features, for the systems that have one."""
        assert self.model is not None
        untrained = self.model.build_untrained()
        known = {"raw pixels": flatten_pixels, "untrained encoder": untrained.encode, TRAINED_ENCODER: self.model.encode}
        return {system: encode for system, encode in known.items() if system in self.features}


class RunSubject(Subject):
    """Trained model with the data of its run, or with other data."""

    has_table = True

    def __init__(self, model: Model, data: Any = None, progress: ProgressCallback | None = None, **protocol: Any):
        self.model, self.data, self.seed = model, data, model.config.seed
        self.title = f"{model.recipe.card.title}, {model.step:,} steps"
        self.protocol = {"checkpoint": f"step {model.step} of {model.config.steps}", "split": "test", "seed": self.seed}
        self._progress, self._table_protocol = progress, protocol

    @cached_property
    def evaluation(self) -> Evaluation:
        """Evaluate the model once, for all suites."""
        assert self.model is not None
        return measure_model(self.model, self.data, self._progress, **self._table_protocol)

    @property
    def table(self) -> ResultTable:
        return self.evaluation.table

    @property
    def features(self) -> Mapping[str, Features]:
        return self.evaluation.features

    @property
    def splits(self) -> Splits:
        return self.evaluation.splits

    def get_test_labels(self) -> Tensor:
        return torch.as_tensor(self.evaluation.test_labels)

    def explain_missing_labels(self) -> str:
        labels = self.evaluation.test_labels
        if not self.features:
            return "this modality has an evaluation of its own"
        return explain_unusable_labels(labels)


def explain_unusable_labels(labels: np.ndarray | None) -> str:
    """Return the reason why labels cannot be used. Empty if they can."""
    if labels is None or np.ndim(labels) != 1:
        return "it needs one label for each sample"
    if len(np.unique(labels)) < 2 or np.unique(labels, return_counts=True)[1].max() < 2:
        return "it needs at least two classes, and two samples of a class"
    return ""


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n samples.

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    z2 = CONFIDENCE_Z**2
    center, spread = (share + z2 / (2 * n)) / (1 + z2 / n), CONFIDENCE_Z / (1 + z2 / n)
    half = spread * math.sqrt(max(share * (1 - share), 0.0) / n + z2 / (4 * n**2))
    return center - half, center + half

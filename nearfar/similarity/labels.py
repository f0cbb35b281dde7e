"""Views with labels, so that samples of one class are similar."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views


@dataclass(frozen=True)
class LabeledViews(Similarity):
    """Views of another similarity, with labels.

    The output is {"v0": (n, …), …, "label": (n,)}. `data.labels` holds the integer class of each sample. A
    recipe receives labels only if it declares `uses_labels`. Without labels `count` fails, so training is
    impossible, but the views can still be inspected, with the label -1.
    """

    base_similarity: Similarity
    """Similarity that draws the views."""
    samples_per_class: int | None = None
    """Number of samples of each class to draw from, or all if a class has fewer.

    None: draw from all samples.
    """

    def __post_init__(self):
        if self.samples_per_class is not None and self.samples_per_class < 1:
            raise UsageError(f"LabeledViews: samples_per_class must be at least 1, got {self.samples_per_class}")

    def count(self, data: Any) -> int:
        if data.labels is None:
            raise UsageError("this recipe learns from labels, and the data have none: use one folder per class, or labeled files")
        if self.samples_per_class is None:
            return self.base_similarity.count(data)
        return int(np.unique(data.labels, return_counts=True)[1].clip(max=self.samples_per_class).sum())

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        if data.labels is None:
            return {"of_views": self.base_similarity.read(data, rows, rng_key), "label": torch.full((len(rows),), -1)}
        if self.samples_per_class is not None:
            chosen = choose_samples_per_class(data, self.samples_per_class, rng_key("labelled"))
            # ids beyond the chosen samples repeat them
            rows = Rows(chosen[rows.ids % len(chosen)], rows.slots, chosen[rows.batch_ids % len(chosen)])
        return {"of_views": self.base_similarity.read(data, rows, rng_key), "label": torch.as_tensor(data.labels[rows.ids])}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return self.base_similarity.view(raw["of_views"], rows, rng_key) | {"label": raw["label"]}


@functools.lru_cache(maxsize=2)
def choose_samples_per_class(data: Any, samples_per_class: int, rng_key: RandomKey) -> Int64[np.ndarray, " k"]:
    """Choose up to `samples_per_class` samples of each class.

    Returns:
        Positions of the chosen samples in ascending order, a function of labels and random key only.
    """
    order = rng_key.permutation(len(data))
    labels = data.labels[order]
    return np.sort(np.concatenate([order[labels == c][:samples_per_class] for c in np.unique(labels)]))

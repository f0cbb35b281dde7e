"""Labels beside views: samples of one class are alike."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from nearfar.core import Key, Raw, Rows, Similarity, UsageError, Views


@dataclass(frozen=True)
class Labelled(Similarity):
    """The views that another similarity draws, with each sample's class: {"v0": (n, …), …, "label": (n,)}.

    `data.labels` holds the class of each sample, an integer; a recipe receives them only if it says `uses_labels`. Without
    labels there is nothing to count, and so nothing to train on; the views can still be looked at, with the label -1.
    """

    of_views: Similarity
    """Who draws the views."""
    per_class: int | None = None
    """Draw from so many samples of each class only (all of a class that has fewer); None: from all."""

    def __post_init__(self):
        if self.per_class is not None and self.per_class < 1:
            raise UsageError(f"Labelled: per_class must be at least 1, got {self.per_class}")

    def count(self, data: Any) -> int:
        if data.labels is None:
            raise UsageError(
                "this recipe learns from labels, and the data have none: use a folder of one folder a class, or labelled files"
            )
        if self.per_class is None:
            return self.of_views.count(data)
        return int(np.unique(data.labels, return_counts=True)[1].clip(max=self.per_class).sum())

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        if data.labels is None:
            return {"of_views": self.of_views.read(data, rows, key), "label": torch.full((len(rows),), -1)}
        if self.per_class is not None:
            chosen = few(data, self.per_class, key("labelled"))
            rows = Rows(chosen[rows.ids % len(chosen)], rows.slots, chosen[rows.batch % len(chosen)])  # who asks for more gets them again
        return {"of_views": self.of_views.read(data, rows, key), "label": torch.as_tensor(data.labels[rows.ids])}

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return self.of_views.view(raw["of_views"], rows, key) | {"label": raw["label"]}


@functools.lru_cache(maxsize=2)
def few(data: Any, per_class: int, key: Key) -> Int64[np.ndarray, " k"]:
    """The positions of `per_class` samples of each class, a function of labels and key only; in rising order."""
    order = key.permutation(len(data))
    labels = data.labels[order]
    return np.sort(np.concatenate([order[labels == c][:per_class] for c in np.unique(labels)]))

"""Batches of P classes with K samples each: every row then has positives, and negatives of every other class."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views
from nearfar.similarity.labels import LabeledViews


@dataclass(frozen=True)
class ClassBalancedViews(Similarity):
    """The views that another similarity draws of samples chosen by their class: {"v0": (n, …), …, "label": (n,)}.

    Each `per_class` consecutive rows of a step are of one class. Classes are drawn anew for every step, all equally often, and none
    twice before each was drawn once; likewise the samples of a class. So a class with fewer than `per_class` samples shows some of them
    again, in other views, and a step with room for more than all classes takes further samples of them. Where the batch is no
    multiple of `per_class`, the last class has fewer rows.

    An epoch has as many rows as there are samples, though not each of them once: the ids of a plan say nothing here but how long
    a step is. What is drawn depends on the key, the step (slots are numbered step by step) and a row's place in it.
    """

    base_similarity: Similarity
    """Who draws the views."""
    samples_per_class: int
    """Samples of each class (K); with a batch of B there are P = B / K classes."""

    def __post_init__(self):
        if self.samples_per_class < 2:
            raise UsageError(
                f"--samples-per-class must be at least 2, got {self.samples_per_class}: a sample alone in its class has no positive"
            )

    def count(self, data: Any) -> int:
        n = LabeledViews(self.base_similarity).count(data)
        if len(np.unique(data.labels)) < 2:
            raise UsageError("this recipe learns to tell classes apart, and the data have one class only")
        return n

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return LabeledViews(self.base_similarity).read(
            data, rows if data.labels is None else self.choose_rows(data, rows, rng_key("by class")), rng_key
        )

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return LabeledViews(self.base_similarity).view(raw, rows, rng_key)

    def choose_rows(self, data: Any, rows: Rows, rng_key: RandomKey) -> Rows:
        """The same slots with the samples that were chosen for them."""
        size = len(rows.batch_ids)
        if size <= self.samples_per_class:
            raise UsageError(
                f"a batch of {size} is one class of --samples-per-class {self.samples_per_class}, with nothing to tell it from: use a larger --batch-size"
            )
        batch = _choose_batch(data, self.samples_per_class, size, rng_key("step", rows.slots[0] // size))
        return Rows(batch[rows.slots % size], rows.slots, batch)


@functools.lru_cache(maxsize=4)  # a step's chunks ask one after the other
def _choose_batch(data: Any, samples_per_class: int, batch_size: int, rng_key: RandomKey) -> Int64[np.ndarray, " b"]:
    """The samples of a whole step."""
    members = _group_by_class(data)
    group, place = np.divmod(np.arange(batch_size), samples_per_class)
    turn, which = np.divmod(group, len(members))  # a second turn where there are more groups than classes
    chosen, batch = rng_key("classes").permutation(len(members))[which], np.empty(batch_size, dtype=np.int64)
    for c in np.unique(chosen):
        here, of_class = chosen == c, members[c]
        shuffled = of_class[np.argsort(rng_key("samples").bits(of_class)[:, 0], kind="stable")]
        batch[here] = shuffled[(turn * samples_per_class + place)[here] % len(of_class)]
    return batch


@functools.lru_cache(maxsize=2)
def _group_by_class(data: Any) -> list[np.ndarray]:
    """For each class the positions of its samples."""
    order = np.argsort(data.labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(data.labels[order])) + 1)

"""Batches of P classes with K samples each.

Every row has positives, and negatives of every other class.
"""

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
    """Views of samples chosen by class: {"v0": (n, …), …, "label": (n,)}.

    Another similarity draws the views. Each `samples_per_class` consecutive rows of a step are of one class.
    Every step draws its classes with equal probability, and repeats a class only after each class was drawn
    once. The samples of a class are drawn in the same way. A class with fewer than `samples_per_class`
    samples repeats some of them, in other views. A step with room for more than all classes takes further
    samples of them. If the batch size is not a multiple of `samples_per_class`, the last class has fewer
    rows.

    An epoch has as many rows as there are samples, but not each sample once. The ids of a plan only determine
    the length of a step. The drawn samples depend on the random key, the step (slots are numbered step by
    step) and the position of a row in its step.
    """

    base_similarity: Similarity
    """Similarity that draws the views."""
    samples_per_class: int
    """Samples of each class (K).

    A batch of size B has P = B / K classes.
    """

    def __post_init__(self):
        if self.samples_per_class < 2:
            raise UsageError(
                f"--samples-per-class must be at least 2, got {self.samples_per_class}: a sample alone in its class has no positive"
            )

    def count(self, data: Any) -> int:
        n = LabeledViews(self.base_similarity).count(data)
        if len(np.unique(data.labels)) < 2:
            raise UsageError("this recipe needs at least two classes, and the data have only one class")
        return n

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return LabeledViews(self.base_similarity).read(
            data, rows if data.labels is None else self.choose_rows(data, rows, rng_key("by class")), rng_key
        )

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return LabeledViews(self.base_similarity).view(raw, rows, rng_key)

    def choose_rows(self, data: Any, rows: Rows, rng_key: RandomKey) -> Rows:
        """Return the same slots with the samples chosen for them.

        Raises:
            UsageError: the batch has room for only one class.
        """
        size = len(rows.batch_ids)
        if size <= self.samples_per_class:
            raise UsageError(
                f"a batch of {size} holds only one class of --samples-per-class {self.samples_per_class}, "
                "so it has no negatives: use a larger --batch-size"
            )
        batch = _choose_batch(data, self.samples_per_class, size, rng_key("step", rows.slots[0] // size))
        return Rows(batch[rows.slots % size], rows.slots, batch)


@functools.lru_cache(maxsize=4)  # the chunks of a step request the same batch one after another
def _choose_batch(data: Any, samples_per_class: int, batch_size: int, rng_key: RandomKey) -> Int64[np.ndarray, " b"]:
    """Choose the samples of a whole step."""
    members = _group_by_class(data)
    group, place = np.divmod(np.arange(batch_size), samples_per_class)
    turn, which = np.divmod(group, len(members))  # turn > 0 if there are more groups than classes
    chosen, batch = rng_key("classes").permutation(len(members))[which], np.empty(batch_size, dtype=np.int64)
    for c in np.unique(chosen):
        here, of_class = chosen == c, members[c]
        shuffled = of_class[np.argsort(rng_key("samples").bits(of_class)[:, 0], kind="stable")]
        batch[here] = shuffled[(turn * samples_per_class + place)[here] % len(of_class)]
    return batch


@functools.lru_cache(maxsize=2)
def _group_by_class(data: Any) -> list[np.ndarray]:
    """Return the positions of the samples of each class."""
    order = np.argsort(data.labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(data.labels[order])) + 1)

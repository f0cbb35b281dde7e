"""A training and a test split: given by the data, stored by an earlier run, or drawn by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey

SAMPLES_PER_TEST_SAMPLE = 5
"""One in five samples is for testing."""


@dataclass(frozen=True, eq=False)
class Splits:
    """`Images`, `Texts`, or whatever has their interface."""

    train: Any
    test: Any
    """None where no test split was wanted (a stored split of no rows) or none is possible (no class has two samples)."""
    test_ids: list[int] | None = None
    """Which rows of the data are for testing, to be stored with a run; None where the data bring their own split."""


def draw_test_ids(n: int, labels: Int64[np.ndarray, " n"] | None, rng_key: RandomKey) -> Int64[np.ndarray, " m"]:
    """One in five rows of each class, rounded, at least one; a class of a single sample keeps it for training.

    Rows are ranked within their class by a keyed permutation, and those of the lowest ranks are taken. Without
    labels all rows are one class.
    """
    order = rng_key.permutation(n)
    label = np.zeros(n, dtype=np.int64) if labels is None else labels[order]
    by_class = np.argsort(label, kind="stable")
    counts = np.bincount(label)
    first = np.cumsum(counts) - counts
    wanted = np.where(counts >= 2, np.maximum(1, (counts + SAMPLES_PER_TEST_SAMPLE // 2) // SAMPLES_PER_TEST_SAMPLE), 0)
    rank = np.arange(n) - first[label[by_class]]
    return np.sort(order[by_class[rank < wanted[label[by_class]]]])


def split_train_test(loaded: Splits, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Complete what a reader found: its own test split, or the stored rows, or rows drawn by `Key(seed)("split")`."""
    data = loaded.train
    if loaded.test is not None:
        if stored_test_ids is not None:
            raise UsageError(
                f"{data.source} brings its own test split, but a split of {len(stored_test_ids)} stored rows was asked for: other data?"
            )
        return loaded
    test_ids = (
        draw_test_ids(len(data), data.labels, RandomKey(seed)("split")) if stored_test_ids is None else _checked(stored_test_ids, data)
    )
    train_ids = np.setdiff1d(np.arange(len(data)), test_ids)
    return Splits(data.subset(train_ids), data.subset(test_ids) if len(test_ids) else None, test_ids.tolist())


def _checked(stored: Sequence[int] | np.ndarray, data: Any) -> Int64[np.ndarray, " m"]:
    ids = np.asarray(stored)
    ids = ids if ids.size else ids.astype(np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise UsageError("a stored split is a list of row numbers")
    outside = ids[(ids < 0) | (ids >= len(data))]
    if outside.size:
        raise UsageError(f"the stored split names row {outside[0]}, but {data.source} has {len(data):,} rows: other data?")
    if len(np.unique(ids)) != len(ids):
        raise UsageError("the stored split names a row twice")
    if len(ids) == len(data):
        raise UsageError(f"the stored split leaves none of the {len(data):,} rows of {data.source} for training")
    return ids.astype(np.int64)

"""Training and test splits.

A split is given by the data, stored by an earlier run, or drawn with a random key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey

SAMPLES_PER_TEST_SAMPLE = 5
"""Number of samples for each test sample: one in five samples is for testing."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Training and test split of a dataset.

    The splits are `Images`, `Texts` or other datasets with the same interface.
    """

    train: Any
    test: Any
    """Test split, or None.

    None means that a stored split has no rows (no test split was wanted), or that no class has two samples.
    """
    test_ids: list[int] | None = None
    """Test rows of the data, to be stored with a run. None if the data bring their own split."""
    validation: Any = None
    """Validation split for the choice of settings, if the data bring one."""


def draw_test_ids(n: int, labels: Int64[np.ndarray, " n"] | None, rng_key: RandomKey) -> Int64[np.ndarray, " m"]:
    """Draw one in five rows of each class for testing.

    The number is rounded, and at least one. A class of a single sample keeps it for training.

    Rows are ranked within their class by a random permutation, and the rows of the lowest ranks are drawn.

    Args:
        n: Number of rows.
        labels: Class of each row, shape (n,). Without labels, all rows are one class.
        rng_key: Random key of the permutation.

    Returns:
        Sorted test rows, shape (m,).
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
    """Split loaded data into a training and a test split.

    The test split is the one that the data bring, or the stored rows, or rows drawn with
    `RandomKey(seed)("split")`.

    Args:
        loaded: Data as a reader found them.
        seed: Random seed of the split.
        stored_test_ids: Test rows stored by an earlier run, or None. No rows mean no test split.

    Raises:
        UsageError: The stored rows do not fit the data, or the data bring their own test split.
    """
    data = loaded.train
    if loaded.test is not None:
        if stored_test_ids is not None:
            raise UsageError(
                f"{data.source} has its own test split, but a stored split of {len(stored_test_ids)} rows was given: another dataset?"
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
        raise UsageError("a stored split must be a list of row numbers")
    outside = ids[(ids < 0) | (ids >= len(data))]
    if outside.size:
        raise UsageError(f"the stored split contains row {outside[0]}, but {data.source} has {len(data):,} rows: another dataset?")
    if len(np.unique(ids)) != len(ids):
        raise UsageError("the stored split contains a row twice")
    if len(ids) == len(data):
        raise UsageError(f"the stored split leaves none of the {len(data):,} rows of {data.source} for training")
    return ids.astype(np.int64)

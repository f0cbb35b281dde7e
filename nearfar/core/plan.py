"""Plan of the samples of each step, a pure function of (seed, step)."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey

MAX_SAMPLES_FOR_ORDER_TABLE = 1 << 24
"""Largest dataset whose epoch order is kept as a table. Larger permutations are computed entry by entry."""


@dataclass(frozen=True)
class Rows:
    """Rows of one step, or a part of them.

    `ids` are the ids of the samples. `slots` number the draws. Slots are unique over the training, so a
    sample that is drawn again gets new random numbers. `batch_ids` holds the ids of the whole step. All three
    are global: a subset means the same rows on every rank, chunk and worker.
    """

    ids: np.ndarray
    slots: np.ndarray
    batch_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.ids[part], self.slots[part], self.batch_ids)

    def select_rank_share(self, rank: int, world_size: int) -> Rows:
        """Return the contiguous share of one rank; shares differ by at most one row."""
        n = len(self)
        return self[rank * n // world_size : (rank + 1) * n // world_size]

    def split(self, chunk_size: int | None) -> list[Rows]:
        """Split into consecutive, even parts of at most `chunk_size` rows.

        The result is a single part if `chunk_size` is None.
        """
        n = len(self)
        parts = max(1, -(-n // chunk_size)) if chunk_size else 1
        return [self[i * n // parts : (i + 1) * n // parts] for i in range(parts)]


@dataclass(frozen=True)
class Plan:
    """Sampling plan: epochs without replacement over `num_samples` samples.

    Batches have `batch_size` samples. The incomplete last batch of an epoch is dropped. `plan.get_rows(step)`
    does not depend on earlier steps, so training resumes at any step without replaying a loader.
    """

    num_samples: int
    batch_size: int
    rng_key: RandomKey

    def __post_init__(self):
        if self.batch_size < 1:
            raise UsageError(f"batch must be at least 1, got {self.batch_size}")
        if self.batch_size > self.num_samples:
            remedy = f"Use --batch-size {self.num_samples} or {'less' if self.num_samples > 1 else 'give more data'}"
            raise UsageError(
                f"batch {self.batch_size} is larger than the data: "
                f"{self.num_samples} training sample{'s' * (self.num_samples != 1)}. {remedy}"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Number of complete batches in an epoch."""
        return self.num_samples // self.batch_size

    def get_rows(self, step: int) -> Rows:
        """Return the rows of the whole batch of a step."""
        epoch, k = divmod(step, self.steps_per_epoch)
        place = np.arange(k * self.batch_size, (k + 1) * self.batch_size)
        rng_key = self.rng_key("order", epoch)
        ids = (
            _order(rng_key, self.num_samples)[place]
            if self.num_samples <= MAX_SAMPLES_FOR_ORDER_TABLE
            else permute_indices(rng_key, self.num_samples, place)
        )
        return Rows(ids, step * self.batch_size + np.arange(self.batch_size), ids)


@functools.lru_cache(maxsize=2)
def _order(rng_key: RandomKey, n: int) -> np.ndarray:
    return rng_key.permutation(n)


def permute_indices(rng_key: RandomKey, n: int, indices: np.ndarray, rounds: int = 6) -> np.ndarray:
    """Compute the entries at `indices` of a random permutation of range(n), without a table.

    A Feistel network permutes the range up to the next power of four. An entry outside range(n) is permuted
    again until it is inside ("cycle walking"). The result is a permutation of range(n).

    Args:
        rng_key: Random key of the permutation.
        n: Length of the permutation.
        indices: Positions to compute, shape (k,).
        rounds: Number of rounds of the Feistel network.

    Returns:
        Entries of the permutation, shape (k,), int64.
    """
    half = np.uint64(max(1, (int(n - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    keys = [rng_key("feistel", r) for r in range(rounds)]
    out = np.asarray(indices).astype(np.uint64)
    outside = np.ones(len(out), dtype=bool)
    while outside.any():
        left, right = out[outside] >> half, out[outside] & mask
        for k in keys:
            left, right = right, left ^ (k.bits(right)[:, 0] & mask)
        out[outside] = (left << half) | right
        outside = out >= np.uint64(n)
    return out.astype(np.int64)

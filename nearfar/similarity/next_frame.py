"""Similarity of consecutive frames of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views


@dataclass(frozen=True)
class NextFramePairs(Similarity):
    """Pairs of consecutive frames: {"v0": frames t, "v1": frames t + 1}.

    Both are uint8 (n, c, h, w). The rows are the frames that have a successor.
    """

    def count(self, data: Any) -> int:
        return len(data.pair_starts)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        t = data.pair_starts[rows.ids]
        # read both together, because they are mostly in the same block of a file
        first, second = data.read(np.concatenate([t, t + 1])).chunk(2)
        return {"v0": first, "v1": second}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)

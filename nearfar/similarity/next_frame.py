"""What follows is alike: a frame and the next one of the same episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views


@dataclass(frozen=True)
class NextFramePairs(Similarity):
    """{"v0": frames t, "v1": frames t + 1}, uint8 (n, c, h, w). Drawn from are the frames that have a successor."""

    def count(self, data: Any) -> int:
        return len(data.pair_starts)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        t = data.pair_starts[rows.ids]
        first, second = data.read(np.concatenate([t, t + 1])).chunk(2)  # read together: they mostly lie in the same block of a file
        return {"v0": first, "v1": second}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)

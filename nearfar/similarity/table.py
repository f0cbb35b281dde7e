"""Similarity of rows of numbers: a row and its copy with random features from other rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views


@dataclass(frozen=True)
class CorruptedRows(Similarity):
    r"""A row and its corrupted copy, {"v0": (n, f), "v1": (n, f)}.

    The corrupted copy differs in \(\lfloor c f \rfloor\) random features, at least in one. Each of them gets
    its value from a random row of the data, drawn independently for each feature: a draw from the feature's
    empirical marginal distribution. A value may be drawn from the row itself.

    Reference: Bahri, Jiang, Tay & Metzler, "SCARF: Self-Supervised Contrastive Learning using Random Feature
    Corruption", ICLR 2022, algorithm 1.
    """

    num_features: int
    corruption: float = 0.6
    """Share of the features that are replaced (c)."""

    prefetches = True

    def __post_init__(self):
        if self.num_corrupted >= self.num_features:
            raise UsageError(
                f"--corruption {self.corruption:g} of {self.num_features} feature(s) leaves none unchanged: use a smaller --corruption, "
                "or a table with more columns"
            )

    @property
    def num_corrupted(self) -> int:
        """Return the number of replaced features, rounded down, at least 1."""
        return max(1, math.floor(self.corruption * self.num_features + 1e-9))  # 0.29 * 100 is less than 29

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        """Read rows, and for each cell a random value of its column."""
        donors = rng_key("donor").integers(rows.slots, len(data), self.num_features)  # (n, f)
        return {"row": data.read(rows.ids), "drawn": data.read_cells(donors)}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        slots = torch.as_tensor(rows.slots).to(raw["row"].device)
        corrupted = self.draw_corrupted_features(slots, rng_key)
        return {"v0": raw["row"], "v1": torch.where(corrupted, raw["drawn"], raw["row"])}

    def draw_corrupted_features(self, slots: Int64[Tensor, " n"], rng_key: RandomKey) -> Bool[Tensor, "n f"]:
        """Draw the same number of features for each row, uniformly without replacement."""
        order = rng_key("corrupted").uniform(slots, self.num_features)
        chosen = order.topk(self.num_corrupted, largest=False).indices  # (n, q)
        return torch.zeros_like(order, dtype=torch.bool).scatter(1, chosen, True)

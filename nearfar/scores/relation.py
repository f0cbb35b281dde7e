"""Who is positive, who negative and who is neither, for a table of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from nearfar.core.errors import UsageError

Side = Literal["pos", "neg", "all"]
"""A row's positives, its negatives, or all its candidates."""


@dataclass(frozen=True)
class Relation:
    """Three kinds of columns for each row: positives, outsiders (no candidates), and negatives, which are the rest.

    Positives are listed where the builder of the table knew them, so that nobody has to look through the table;
    otherwise they are a mask.
    """

    columns: int
    """m, the number of columns."""
    listed: Int[Tensor, "n p"] | None = None
    """The positives' columns; all rows have equally many."""
    mask: Bool[Tensor, "n m"] | None = None
    """The positives, where they are not listed."""
    out: Bool[Tensor, "n m"] | None = None
    """Outsiders; none of them positive. None: there are none."""
    itself: Int[Tensor, "n 1"] | None = None
    """The column that is the row itself: one more outsider. Neither positive nor in `out`."""

    def part(self, scores: Float[Tensor, "n m"], side: Side, absent: float) -> Float[Tensor, "n _"]:
        """The scores of one side, with `absent` in all other columns; of listed positives, their columns alone."""
        if side == "pos":
            return torch.where(self._mask, scores, absent) if self.listed is None else scores.gather(1, self.listed)
        if side == "all":
            return _hide(scores, self.out, self.itself, absent)
        if self.listed is None:
            return _hide(scores, self._mask if self.out is None else self._mask | self.out, self.itself, absent)
        return _hide(scores, self.out, self.hidden_from_negatives(), absent)

    def hidden_from_negatives(self) -> Int[Tensor, "n h"]:
        """Columns that are no negatives: the listed positives, and the row itself."""
        assert self.listed is not None, "positives are a mask"
        return self.listed if self.itself is None else torch.cat([self.listed, self.itself], 1)

    def count(self, side: Side, like: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
        """How many columns of each row are on one side, as numbers of the dtype of `like`."""
        fixed = self.fixed_count(side)
        if fixed is not None:
            return like.new_full(like.shape[:1], fixed)
        if side == "pos":
            return self._mask.sum(1).to(like)
        outsiders = 0 if self.out is None else self.out.sum(1).to(like)
        candidates = like.new_full(like.shape[:1], self.columns - (self.itself is not None)) - outsiders
        return candidates if side == "all" else candidates - self.count("pos", like)

    def fixed_count(self, side: Side) -> int | None:
        """The number of columns on one side, where it is the same for every row and known without counting."""
        positives = None if self.listed is None else self.listed.shape[1]
        if side == "pos":
            return positives
        candidates = None if self.out is not None else self.columns - (self.itself is not None)
        if side == "all":
            return candidates
        return None if candidates is None or positives is None else candidates - positives

    def dense(self, side: Literal["pos", "neg"], like: Float[Tensor, "n m"]) -> Bool[Tensor, "n m"]:
        """One side as a mask."""
        negative, candidate = (self.part(torch.ones_like(like), which, 0.0) > 0 for which in ("neg", "all"))
        return negative if side == "neg" else candidate & ~negative

    @property
    def _mask(self) -> Tensor:
        assert self.mask is not None, "positives are listed, or a mask"
        return self.mask


def as_ids(given: Any, n: int, what: str) -> Int64[Tensor, " n"]:
    """One whole number, or truth value, for each of n rows; of an unsigned type -1 would be the largest number."""
    if not isinstance(given, Tensor) or given.shape != (n,) or given.is_floating_point() or given.is_complex():
        found = f"{given.dtype} of the shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise UsageError(f"{what} must be a tensor of {n} whole numbers, one a row; got {found}")
    return given.long()


def same(row: Int[Tensor, " n"], col: Int[Tensor, " m"]) -> Bool[Tensor, "n m"]:
    """Where ids are equal; -1 equals nothing, not even -1."""
    nobody = torch.iinfo(row.dtype).min
    return torch.where(row == -1, nobody, row)[:, None] == col


def _hide(scores: Tensor, mask: Tensor | None, at: Tensor | None, absent: float) -> Tensor:
    """Scores with `absent` where the mask is true and in the columns that `at` lists for each row."""
    if mask is not None:
        scores = torch.where(mask, absent, scores)
    return scores if at is None else scores.scatter(1, at, absent)

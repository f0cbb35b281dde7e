"""Roles of the columns of a score table: positive, negative or excluded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from nearfar.core.errors import UsageError

CandidateSet = Literal["pos", "neg", "all"]
"""Positives of a row, negatives of a row, or all candidates of a row."""


@dataclass(frozen=True)
class CandidateRoles:
    """Roles of the columns for each row.

    A column is positive, excluded or negative.

    Excluded columns are not candidates. All columns that are neither positive nor excluded are negative.
    Positives are a list of columns if the builder of the table knows them, which saves a search of the table.
    Otherwise they are a mask.
    """

    num_columns: int
    """Number of columns, m."""
    positive_columns: Int[Tensor, "n p"] | None = None
    """Columns of the positives, the same number p for every row."""
    positive_mask: Bool[Tensor, "n m"] | None = None
    """Mask of the positives, if they are not listed."""
    excluded_mask: Bool[Tensor, "n m"] | None = None
    """Mask of the excluded columns, none of them positive. None: no column is excluded."""
    self_column: Int[Tensor, "n 1"] | None = None
    """Column that is the row itself. It is also excluded, but neither positive nor in `excluded_mask`."""

    def select_scores(self, scores: Float[Tensor, "n m"], candidate_set: CandidateSet, fill_value: float) -> Float[Tensor, "n _"]:
        """Return the scores of one candidate set.

        All other columns have `fill_value`. For listed positives the result holds only their columns, shape
        (n, p).
        """
        if candidate_set == "pos":
            return torch.where(self._mask, scores, fill_value) if self.positive_columns is None else scores.gather(1, self.positive_columns)
        if candidate_set == "all":
            return _hide(scores, self.excluded_mask, self.self_column, fill_value)
        if self.positive_columns is None:
            return _hide(
                scores, self._mask if self.excluded_mask is None else self._mask | self.excluded_mask, self.self_column, fill_value
            )
        return _hide(scores, self.excluded_mask, self.get_columns_hidden_from_negatives(), fill_value)

    def get_columns_hidden_from_negatives(self) -> Int[Tensor, "n h"]:
        """Return the columns that are not negatives, (n, h).

        These are the listed positives and the row itself.
        """
        assert self.positive_columns is not None, "positives are a mask"
        return self.positive_columns if self.self_column is None else torch.cat([self.positive_columns, self.self_column], 1)

    def count(self, candidate_set: CandidateSet, like: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
        """Count the candidates of each row in one set, (n,), in the dtype of `like`."""
        fixed = self.get_fixed_count(candidate_set)
        if fixed is not None:
            return like.new_full(like.shape[:1], fixed)
        if candidate_set == "pos":
            return self._mask.sum(1).to(like)
        outsiders = 0 if self.excluded_mask is None else self.excluded_mask.sum(1).to(like)
        candidates = like.new_full(like.shape[:1], self.num_columns - (self.self_column is not None)) - outsiders
        return candidates if candidate_set == "all" else candidates - self.count("pos", like)

    def get_fixed_count(self, candidate_set: CandidateSet) -> int | None:
        """Return the size of one candidate set, or None if it must be counted.

        The size is known if it is the same for every row by construction.
        """
        positives = None if self.positive_columns is None else self.positive_columns.shape[1]
        if candidate_set == "pos":
            return positives
        candidates = None if self.excluded_mask is not None else self.num_columns - (self.self_column is not None)
        if candidate_set == "all":
            return candidates
        return None if candidates is None or positives is None else candidates - positives

    def to_mask(self, candidate_set: Literal["pos", "neg"], like: Float[Tensor, "n m"]) -> Bool[Tensor, "n m"]:
        """Return the positives or the negatives as a mask."""
        negative, candidate = (self.select_scores(torch.ones_like(like), which, 0.0) > 0 for which in ("neg", "all"))
        return negative if candidate_set == "neg" else candidate & ~negative

    @property
    def _mask(self) -> Tensor:
        assert self.positive_mask is not None, "positives are listed, or a mask"
        return self.positive_mask


def as_ids(ids: Any, n: int, name: str) -> Int64[Tensor, " n"]:
    """Return the ids of n rows as int64.

    Unsigned integers are converted because their -1 would be the largest number.

    Args:
        ids: Integers or truth values, shape (n,).
        n: Number of rows.
        name: Name of the argument for the error message.

    Raises:
        UsageError: If `ids` is not such a tensor.
    """
    if not isinstance(ids, Tensor) or ids.shape != (n,) or ids.is_floating_point() or ids.is_complex():
        found = f"{ids.dtype} of the shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise UsageError(f"{name} must be a tensor of {n} whole numbers, one per row; got {found}")
    return ids.long()


def match_ids(row_ids: Int[Tensor, " n"], column_ids: Int[Tensor, " m"]) -> Bool[Tensor, "n m"]:
    """Return the mask (n, m) of equal ids.

    The id -1 equals nothing, not even -1.
    """
    nobody = torch.iinfo(row_ids.dtype).min
    return torch.where(row_ids == -1, nobody, row_ids)[:, None] == column_ids


def _hide(scores: Tensor, mask: Tensor | None, at: Tensor | None, fill_value: float) -> Tensor:
    """Fill scores where the mask is true and in the columns `at` of each row."""
    if mask is not None:
        scores = torch.where(mask, fill_value, scores)
    return scores if at is None else scores.scatter(1, at, fill_value)

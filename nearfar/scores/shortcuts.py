"""Row statistics that need no pass over the table, or only the fastest one: for scores that are matrix products.

What is known of a table by construction (who sits opposite whom, which rows share a label) gives counts at once, and sums
of positives from sums of vectors. The log-sum-exp over all candidates, or over all but listed ones, goes to `fused`.
Everything else is left to the general pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.scores.fused import can_share_exponentials, lse, lse_of_self
from nearfar.scores.half import half_cross_entropy
from nearfar.scores.score import HALF_DTYPES
from nearfar.scores.statistics import Statistic, log_sum_exp

if TYPE_CHECKING:
    from nearfar.scores.table import Scores

MIN_TABLE_ENTRIES = 1 << 19
"""Smaller tables are faster made at once: a shortcut saves work an entry and costs a few more small operations."""
MIN_SELF_TABLE_ENTRIES = 1 << 17
"""The same for rows against themselves, of which half a table is enough."""


def compute_shortcut(S: Scores, statistic: Statistic) -> Float[Tensor, " n"] | None:
    """A statistic over the shared columns; None where there is no shorter way."""
    if not S.score.is_dot or S.row_skip is not None or S.diagonal is not None or S.rows_per_block is not None or _is_small(S):
        return None
    if statistic.reduction == "lse" and statistic.candidate_set == "all":
        return _all_lse(S, statistic)
    if S.row_id is None or S.id_period is not None:
        return _of_listed(S, statistic)
    if S.row_id is S.col_id or not S.exclude_self:
        return _of_labelled(S, statistic)
    return None


def fast_cross_entropy(S: Scores) -> Float[Tensor, " n"] | None:
    """all_lse - pos_sum of a small table of pairs or of two views, by torch's own kernel, or of half-precision vectors by ours; None
    for any other table."""
    if S.query.dtype in HALF_DTYPES:
        return half_cross_entropy(S)
    if not _suits_torch(S):
        return None
    S.check_same_on_ranks("cross_entropy")
    if S.exclude_self:
        assert S.id_period is not None
        itself = torch.eye(len(S), dtype=torch.bool, device=S.query.device)
        return F.cross_entropy(S.to_dense().masked_fill(itself, -math.inf), S.resolved_diagonal.roll(-S.id_period), reduction="none")
    return F.cross_entropy(S.to_dense(), S.resolved_diagonal, reduction="none")


def fast_symmetric_cross_entropy(S: Scores) -> Float[Tensor, ""] | None:
    """The mean over rows and over columns of a small square table of pairs, likewise."""
    if not _suits_torch(S) or S.exclude_self or len(S) != len(S.key):
        return None
    S.check_same_on_ranks("cross_entropy_both_ways")
    table, target = S.to_dense(), S.resolved_diagonal
    return (F.cross_entropy(table, target) + F.cross_entropy(table.T, target)) / 2


def _suits_torch(S: Scores) -> bool:
    """Whether every row has one positive, known by its place, and the table is small."""
    if (
        S.row_id is None
        or S.diagonal is not None
        or S.private_scores is not None
        or S.row_skip is not None
        or S.rows_per_block is not None
        or S.score.values_per_pair > 1
    ):
        return False
    of_pairs = S.id_period == len(S.key) and not S.exclude_self
    of_two_views = S.exclude_self and S.id_period is not None and len(S) == len(S.key) == 2 * S.id_period
    return (of_pairs or of_two_views) and S.query.dtype not in HALF_DTYPES and _is_small(S) and len(S.key) > 0


def _is_small(S: Scores) -> bool:
    by_halves = _is_of_itself(S) and torch.get_num_threads() == 1  # several threads wait for each other after every small operation
    return len(S) * len(S.key) < (MIN_SELF_TABLE_ENTRIES if by_halves else MIN_TABLE_ENTRIES)


def _is_of_itself(S: Scores) -> bool:
    return S.query is S.key and S.exclude_self


def _all_lse(S: Scores, what: Statistic) -> Tensor:
    if _is_of_itself(S) and what.power >= 0 and can_share_exponentials(S.scale, S.score.lowest * what.power, S.query.dtype):
        return lse_of_self(S.query, float(S.scale) * what.power) + S.bias * what.power
    hidden = torch.arange(len(S), device=S.query.device)[:, None] if S.exclude_self else None
    return lse(_query(S) * what.power, S.key, hidden) + S.bias * what.power


def _of_listed(S: Scores, what: Statistic) -> Tensor | None:
    """Tables whose positives are the columns a fixed number of places away (pairs, views), or that have none (matched)."""
    partners = _partners(S)
    counts = {"pos": len(partners), "neg": len(S.key) - S.exclude_self - len(partners), "all": len(S.key) - S.exclude_self}
    if what.reduction == "count":
        return S.query.new_full((len(S),), counts[what.candidate_set])
    if what.candidate_set == "neg" and what.reduction == "lse":
        hidden = S.compute_candidate_roles().get_columns_hidden_from_negatives()
        return lse(_query(S) * what.power, S.key, hidden) + S.bias * what.power
    if what.candidate_set != "pos" or what.reduction == "softplus" or not partners:
        return None
    scores = [(S.query * k).sum(1) * S.scale + S.bias for k in partners]
    if what.reduction == "sum":
        return sum(scores[1:], scores[0])
    return log_sum_exp(torch.stack(scores, 1) * what.power) if len(scores) > 1 else scores[0] * what.power


def _partners(S: Scores) -> list[Tensor]:
    """For each positive a row has, the keys in the order of the rows. A rotation is cheaper than an index, also backwards."""
    if S.row_id is None or S.id_period is None:
        return []
    if not S.exclude_self:
        return [S.key[: len(S)]] if S.id_period == len(S.key) else [S.key.roll(-t, 0) for t in range(0, len(S.key), S.id_period)]
    return [S.key.roll(-t, 0) for t in range(S.id_period, len(S.key), max(S.id_period, 1))]


def _of_labelled(S: Scores, what: Statistic) -> Tensor | None:
    r"""Rows and columns with labels: \(\sum_{p} q_i^\top k_p = q_i^\top (\sum_{p} k_p)\), one sum of vectors a class."""
    if what.reduction not in ("count", "sum") or what.candidate_set != "pos" or not len(S.key):
        return None
    assert S.row_id is not None
    assert S.col_id is not None
    rows, columns = S.row_id.long(), S.col_id.long()  # not every torch searches among integers of another width
    rising = columns.sort().values
    first = torch.searchsorted(rising, rows)  # where a label first stands among the sorted ones names it: nothing waits for a count
    count = torch.searchsorted(rising, rows, right=True) - first - int(S.exclude_self)
    count = torch.where(rows == -1, 0, count)
    if what.reduction == "count":
        return count.to(S.query.dtype)
    total = torch.zeros_like(S.key).index_add(0, torch.searchsorted(rising, columns), S.key)
    positives = total.index_select(0, first.clamp_max(len(S.key) - 1)) - (S.key if S.exclude_self else 0)
    return torch.where(count > 0, (S.query * positives).sum(1) * S.scale + S.bias * count, 0.0)


def _query(S: Scores) -> Tensor:
    return S.query if isinstance(S.scale, (int, float)) and S.scale == 1 else S.query * S.scale

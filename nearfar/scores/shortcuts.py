"""Faster row statistics for scores that are matrix products.

The construction of a table determines partners and equal labels. Counts follow directly, and sums of
positives follow from sums of vectors. `fused` computes the log-sum-exp over all candidates or over all but
listed candidates. The general pass over the table computes everything else.
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
"""Smallest table that uses a shortcut. A shortcut saves work per entry but adds a few small operations."""
MIN_SELF_TABLE_ENTRIES = 1 << 17
"""Smallest table of rows against themselves that uses a shortcut. Half of such a table is enough."""


def compute_shortcut(S: Scores, statistic: Statistic) -> Float[Tensor, " n"] | None:
    """Compute a statistic of the shared columns with a shortcut.

    The result is None if there is no shortcut.
    """
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
    """Compute all_lse - pos_sum with a fused kernel, or return None.

    torch's kernel is used for a small table of pairs or of two views. The Triton kernels are used for
    half-precision vectors. The result is None for any other table.
    """
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
    """Compute the symmetric cross-entropy of a table of pairs.

    It is the mean over rows and columns of a small square table. The result is None for any other table.
    """
    if not _suits_torch(S) or S.exclude_self or len(S) != len(S.key):
        return None
    S.check_same_on_ranks("cross_entropy_both_ways")
    table, target = S.to_dense(), S.resolved_diagonal
    return (F.cross_entropy(table, target) + F.cross_entropy(table.T, target)) / 2


def _suits_torch(S: Scores) -> bool:
    """Return True for a small table with one positive per row at a known column."""
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
    # Several threads wait for each other after every small operation.
    by_halves = _is_of_itself(S) and torch.get_num_threads() == 1
    return len(S) * len(S.key) < (MIN_SELF_TABLE_ENTRIES if by_halves else MIN_TABLE_ENTRIES)


def _is_of_itself(S: Scores) -> bool:
    return S.query is S.key and S.exclude_self


def _all_lse(S: Scores, what: Statistic) -> Tensor:
    if _is_of_itself(S) and what.power >= 0 and can_share_exponentials(S.scale, S.score.lowest * what.power, S.query.dtype):
        return lse_of_self(S.query, float(S.scale) * what.power) + S.bias * what.power
    hidden = torch.arange(len(S), device=S.query.device)[:, None] if S.exclude_self else None
    return lse(_query(S) * what.power, S.key, hidden) + S.bias * what.power


def _of_listed(S: Scores, what: Statistic) -> Tensor | None:
    """Compute a statistic of a table with known positives.

    Positives are at fixed offsets, or there are none. Examples are pairs and views (fixed offsets) and
    matched tables (no shared positives).
    """
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
    """Return the partner keys of all rows.

    The list has one tensor for each positive of a row. Keys are in the order of the rows. A rotation is
    cheaper than an index, also in backward.
    """
    if S.row_id is None or S.id_period is None:
        return []
    if not S.exclude_self:
        return [S.key[: len(S)]] if S.id_period == len(S.key) else [S.key.roll(-t, 0) for t in range(0, len(S.key), S.id_period)]
    return [S.key.roll(-t, 0) for t in range(S.id_period, len(S.key), max(S.id_period, 1))]


def _of_labelled(S: Scores, what: Statistic) -> Tensor | None:
    r"""Compute counts and sums of positives in a table with labels.

    It needs one sum of vectors per class: \(\sum_{p} q_i^\top k_p = q_i^\top (\sum_{p} k_p)\).
    """
    if what.reduction not in ("count", "sum") or what.candidate_set != "pos" or not len(S.key):
        return None
    assert S.row_id is not None
    assert S.col_id is not None
    # Some torch versions need equal integer dtypes for searchsorted.
    rows, columns = S.row_id.long(), S.col_id.long()
    rising = columns.sort().values
    # The first position among the sorted labels identifies a label. The host does not wait for a count.
    first = torch.searchsorted(rising, rows)
    count = torch.searchsorted(rising, rows, right=True) - first - int(S.exclude_self)
    count = torch.where(rows == -1, 0, count)
    if what.reduction == "count":
        return count.to(S.query.dtype)
    total = torch.zeros_like(S.key).index_add(0, torch.searchsorted(rising, columns), S.key)
    positives = total.index_select(0, first.clamp_max(len(S.key) - 1)) - (S.key if S.exclude_self else 0)
    return torch.where(count > 0, (S.query * positives).sum(1) * S.scale + S.bias * count, 0.0)


def _query(S: Scores) -> Tensor:
    return S.query if isinstance(S.scale, (int, float)) and S.scale == 1 else S.query * S.scale

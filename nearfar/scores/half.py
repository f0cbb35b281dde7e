r"""Log-sum-exp over rows and columns of \(\text{scale} \cdot Q K^\top\) for half-precision vectors on CUDA.

The Triton kernels are in `kernels`. The forward pass keeps two vectors. The backward pass computes blocks of
dL/ds in half precision. Two matrix products turn each block into gradients. Memory is linear in n + m plus
one block. Within `shared_over_ranks` each rank computes its share of the rows.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearfar.core.rank_sharing import RankGroup, check_same_on_ranks, get_sharing_ranks
from nearfar.scores.fused import MAX_SCORE_SPREAD
from nearfar.scores.rowmap import refuse_second_derivative
from nearfar.scores.statistics import POS_COUNT, POS_LSE, POS_SUM, Statistic

if TYPE_CHECKING:
    from nearfar.scores.kernels import CandidateLayout
    from nearfar.scores.table import Scores

MAX_BLOCK_BYTES, MIN_BLOCK_ROWS = 1 << 28, 8192
"""Largest block of dL/ds in bytes, and smallest number of rows in a block. Fewer rows make the matrix
products inefficient."""

StatisticValues = dict[Statistic, Tensor]


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _kernels():
    """Import the kernels on first use, because Triton imports slowly."""
    from nearfar.scores import kernels

    return kernels


def can_use_kernels(q: Tensor, k: Tensor) -> bool:
    """Return True if the kernels support these matrices.

    They need non-empty half-precision matrices on CUDA, and Triton.
    """
    half = q.dtype == k.dtype and q.dtype in (torch.bfloat16, torch.float16)
    return half and q.is_cuda and q.ndim == k.ndim == 2 and q.shape[0] > 0 and k.shape[0] > 0 and _has_triton()


def half_stats(S: Scores, requested: tuple[Statistic, ...], both: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Compute statistics of a table of half-precision vectors.

    The kernels compute log-sum-exps over all candidates or all negatives. They also compute the scores of
    partners if every row has one partner. Everything else is computed in single precision.

    Args:
        S: Table of n rows and m columns.
        requested: Statistics to compute.
        both: True if statistics of the columns are computed too.

    Returns:
        Statistics of the rows, each (n,), and of the columns, each (m,). The second tuple is empty without
        `both`.
    """
    known = S.score.is_dot and S.diagonal is None and can_use_kernels(S.query, S.key)
    rows, columns = _by_kernels(S, requested, both) if known else ({}, {})
    rows = {what: S.add_private_candidates(what, value) for what, value in rows.items()} if S.private_scores is not None else rows
    rest = tuple(what for what in requested if what not in rows)
    if rest:
        query = S.query.float()
        full = replace(S, query=query, key=query if S.key is S.query else S.key.float())
        rows.update(zip(rest, full.stats(*rest), strict=True))
        columns.update(zip(rest, full.T.stats(*rest), strict=True) if both else ())
    return tuple(rows[what] for what in requested), tuple(columns[what] for what in requested) if both else ()


def half_cross_entropy(S: Scores) -> Tensor | None:
    """Compute all_lse - pos_sum with the kernels, or return None.

    The kernels apply if each row has exactly one partner. A bias does not change the result.
    """
    shift = _one_partner(S)
    if shift is None or S.private_scores is not None or S.diagonal is not None or not (S.score.is_dot and can_use_kernels(S.query, S.key)):
        return None
    S.check_same_on_ranks("half_cross_entropy")
    layout = _kernels().CandidateLayout(shift, S.exclude_self, False, S.row_skip, S.col_skip)
    rows, _, pos = half_lse(S.query, S.key, S.scale, S.score.lowest, layout)
    return rows - pos


def _by_kernels(S: Scores, asked: tuple[Statistic, ...], both: bool) -> tuple[StatisticValues, StatisticValues]:
    """Compute the statistics that the kernels support.

    The results are statistics of rows and of columns, without private candidates.
    """
    CandidateLayout, shift = _kernels().CandidateLayout, _one_partner(S)
    simple = shift is not None or S.row_id is None  # otherwise ids determine the positives
    if S.row_skip is not None and not simple:
        return {}, {}
    layout = CandidateLayout(shift, S.exclude_self, False, S.row_skip, S.col_skip)
    of_rows, of_columns, pos = StatisticValues(), StatisticValues(), None
    for what in asked:
        if what.reduction == "lse" and (what.candidate_set == "all" or (what.candidate_set == "neg" and simple)):
            hidden = layout._replace(hide_partners=what.candidate_set == "neg" and shift is not None)
            scale = S.scale if what.power == 1 else S.scale * what.power
            rows, columns, partners = half_lse(S.query, S.key, scale, S.score.lowest, hidden, both)
            of_rows[what], of_columns[what] = (_plus(x, S.bias, what.power) for x in (rows, columns))
            pos = _plus(partners, S.bias) if what.power == 1 else pos
    if shift is not None and pos is not None and (not both or (shift == 0 and len(S) == len(S.key))):
        known = {POS_SUM: pos, POS_LSE: pos} | ({POS_COUNT: torch.ones_like(pos)} if POS_COUNT in asked else {})
        of_rows |= known
        of_columns |= known  # square table of pairs: the score of column j with its partner is that of row j
    elif S.row_id is None and of_rows:
        nothing = torch.zeros(len(S), device=S.query.device)
        of_rows |= {POS_SUM: nothing, POS_COUNT: nothing, POS_LSE: torch.full_like(nothing, -math.inf)}
    return of_rows, of_columns


def _plus(x: Tensor, bias: float | Tensor, power: float = 1) -> Tensor:
    return x + bias * power if isinstance(bias, Tensor) or bias else x


def _one_partner(S: Scores) -> int | None:
    """Return the column offset of each row's only positive.

    The result is None if rows have no positive or several.
    """
    n, m = len(S), len(S.key)
    if S.id_period == m >= n and not S.exclude_self and S.row_id is not None:
        return 0
    return S.id_period if S.exclude_self and S.id_period is not None and n == m == 2 * S.id_period else None


def half_lse(
    q: Tensor, k: Tensor, scale: float | Tensor, lowest: float, layout: CandidateLayout, both: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log-sum-exps of rows and columns, in fp32.

    Rows and columns share one exponential, relative to the largest possible score, if vectors are unit
    vectors and the scale is a number that is not too large. Otherwise the kernels use running maxima, and
    columns take a separate pass.

    Args:
        q: Queries, shape (n, d), in half precision.
        k: Keys, shape (m, d), in half precision.
        scale: Factor of the scores, 1 / temperature.
        lowest: Smallest score before scaling: -1 for unit vectors.
        layout: Partners and excluded columns of the table.
        both: True if log-sum-exps of the columns are computed too.

    Returns:
        Log-sum-exps of rows, (n,), and of columns, (m,), and the score of each row with its partner, (n,).
        Parts that are not computed are empty.
    """
    return _HalfLse.apply(q, k, *_scale_and_bound(scale, lowest), layout, both, q is k)  # type: ignore[return-value]


class _HalfLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None, layout: CandidateLayout, both: bool, itself: bool):
        q, k = q.contiguous(), k.contiguous()
        ranks = get_sharing_ranks()
        half = itself and not both and ranks.world_size == 1 and _kernels().is_mirrored(layout, len(q))
        rows, cols, pos = _statistics(q, k, scale, bound, layout, both, ranks, half)
        learned = isinstance(scale, Tensor)
        ctx.save_for_backward(q, k, rows, cols, *((scale,) if learned else ()))
        ctx.options = bound, layout, both, itself, None if learned else scale, ranks
        ctx.set_materialize_grads(False)
        return rows, cols, pos

    @staticmethod
    def backward(ctx, row_grad: Tensor | None, col_grad: Tensor | None, pos_grad: Tensor | None):  # type: ignore[override]
        refuse_second_derivative("half_lse")
        q, k, rows, cols, *learned = ctx.saved_tensors
        bound, layout, both, itself, scale, ranks = ctx.options
        scale = learned[0] if learned else scale
        missing = row_grad is None or pos_grad is None or col_grad is None
        nothing = torch.zeros(max(len(q), len(k)), device=q.device) if missing else rows
        weights = [nothing[: len(x)] if g is None else g for g, x in ((row_grad, q), (col_grad, k), (pos_grad, q))]
        size = _size_of(*weights) if q.dtype == torch.float16 else None
        weights = [w.contiguous() if size is None else w / size for w in weights]
        # Rows against themselves: the gradient of the columns is the transposed gradient of the rows.
        turned = itself and not both and layout.row_skip is layout.col_skip
        lse = (rows, rows) if turned else (rows, cols if both else None)
        weight = weights[0], weights[0] if turned else weights[1], weights[2]
        dq, dk = _gradients(q, k, lse, weight, scale, bound, layout, turned, ctx.needs_input_grad[1], ranks)
        dscale = None
        if ctx.needs_input_grad[2]:  # in a turned table each pair counts twice
            dscale = (dq.float() * q).sum().reshape(1) / (2 if turned else 1) * (1 if size is None else size)
        factor = scale if size is None else scale * size
        dk = None if dk is None else torch.mul(dk, factor, out=torch.empty_like(k))
        return dq.mul_(factor), dk, dscale, None, None, None, None


class _HalfClip(torch.autograd.Function):
    """Autograd function of `half_clip` that computes the gradients in forward.

    The GPU therefore does not wait for the call of backward.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None):
        q, k, n, ranks = q.contiguous(), k.contiguous(), q.shape[0], get_sharing_ranks()
        layout = _kernels().CandidateLayout(0)
        rows, cols, pos = _statistics(q, k, scale, bound, layout, True, ranks)
        if any(ctx.needs_input_grad[:3]):
            half, minus = torch.full((n,), 0.5, device=q.device), torch.full((n,), -1.0, device=q.device)
            dq, dk = _gradients(q, k, (rows, cols), (half, half, minus), scale, bound, layout, False, True, ranks)
            assert dk is not None
            dscale = (dq.float() * q).sum().reshape(1).div_(n) if ctx.needs_input_grad[2] else None
            ctx.save_for_backward(dq.mul_(scale / n), torch.mul(dk, scale / n, out=torch.empty_like(k)), dscale)
        return torch.add(rows, cols).mul_(0.5).sub_(pos).mean()

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        refuse_second_derivative("clip")
        return *(None if d is None else d * grad for d in ctx.saved_tensors), None


def half_clip(q: Tensor, k: Tensor, scale: float | Tensor, lowest: float) -> Tensor:
    """Compute the symmetric InfoNCE loss of a table of pairs.

    The loss is the mean over rows and columns of a square table, in fp32.

    Args:
        q: Queries, shape (n, d), in half precision.
        k: Keys, shape (n, d), in half precision. Row i is the positive of query i.
        scale: Factor of the scores, 1 / temperature.
        lowest: Smallest score before scaling, as in `half_lse`.
    """
    check_same_on_ranks("clip", (q, k, scale if isinstance(scale, Tensor) else torch.tensor(scale)))
    return _HalfClip.apply(q, k, *_scale_and_bound(scale, lowest))  # type: ignore[return-value]


def _scale_and_bound(scale: float | Tensor, lowest: float) -> tuple[float | Tensor, float | None]:
    """Return the kernel scale and the largest possible score.

    The second value is None if scores cannot share one exponential.
    """
    if isinstance(scale, Tensor):
        return scale.float().reshape(1), None
    scale = float(scale)
    return scale, scale if scale > 0 and -2 * lowest * scale < MAX_SCORE_SPREAD else None


def _statistics(
    q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None, layout: CandidateLayout, both: bool, ranks: RankGroup,
    half_table: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute log-sum-exps of rows and columns, and partner scores.

    Columns are computed only if `both`. Parts that do not exist are empty. `half_table` is as in
    `sum_bounded_exponentials`.
    """
    kernels = _kernels()
    n = q.shape[0]
    (at,) = ranks.split_own_rows(n, n)
    own, mine = q if ranks.world_size == 1 else q[at], _of_rows(layout, at, ranks)
    if bound is not None:
        sums = kernels.sum_bounded_exponentials(own, k, scale, bound, mine, at.start, both, half_table)
        ranks.sum([sums[own.shape[0] :]])
        sums.log_().add_(bound)
        rows, cols = sums[: own.shape[0]], sums[own.shape[0] :]
    else:
        rows = kernels.online_lse(own, k, scale, mine, at.start)
        cols = _online_columns(q, k, scale, layout, ranks) if both else rows.new_empty(0)
    pos = rows.new_empty(0) if layout.shift is None else ranks.gather(kernels.partner_scores(own, k, scale, layout.shift, at.start), n)
    return ranks.gather(rows, n), cols, pos


def _of_rows(layout: CandidateLayout, at: slice, ranks: RankGroup) -> CandidateLayout:
    """Select the rows of this rank from the layout."""
    return layout if layout.row_skip is None or ranks.world_size == 1 else layout._replace(row_skip=layout.row_skip[at])


def _online_columns(q: Tensor, k: Tensor, scale: float | Tensor, layout: CandidateLayout, ranks: RankGroup) -> Tensor:
    """Compute the log-sum-exp of columns as rows of the transpose."""
    (at,) = ranks.split_own_rows(len(k), len(k))
    shift = None if layout.shift is None else -layout.shift % len(q)
    turned = layout._replace(shift=shift, row_skip=layout.col_skip, col_skip=layout.row_skip)
    return ranks.gather(_kernels().online_lse(k[at], q, scale, _of_rows(turned, at, ranks), at.start), len(k))


def _size_of(*grads: Tensor) -> Tensor:
    """Return the largest weight.

    dL/ds divided by this weight fits the narrow range of fp16. (bf16 has the range of fp32.)
    """
    return torch.stack([g.abs().amax() for g in grads]).amax().clamp_min(torch.finfo(torch.float32).tiny)


def _gradients(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor], scale: float | Tensor,
    bound: float | None, layout: CandidateLayout, turned: bool, of_keys: bool, ranks: RankGroup,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Compute the gradients of q and k without the scale.

    If `turned`, k is q and dL/ds already includes its transpose, so one matrix product is enough.
    """
    kernels = _kernels()
    size = min(max(MIN_BLOCK_ROWS, MAX_BLOCK_BYTES // (2 * len(k)) // 128 * 128), len(q))
    buffer = q.new_empty(size, len(k))
    dq = torch.empty_like(q) if ranks.world_size == 1 else torch.zeros_like(q)
    dk = k.new_zeros(k.shape, dtype=torch.float32) if of_keys and not turned else None
    for at in ranks.split_own_rows(len(q), size):
        block = buffer[: at.stop - at.start]
        here = (lse[0][at], lse[1]), (weight[0][at], weight[1], weight[2])
        part = layout if layout.row_skip is None else layout._replace(row_skip=layout.row_skip[at])
        kernels.fill_score_gradients(q[at], k, *here, scale, bound, part, at.start, turned, block)
        torch.mm(block, k, out=dq[at])
        if dk is not None:
            dk = _add_product(dk, block.T, q[at])
    ranks.sum([g for g in (dq, dk) if g is not None])
    return dq, dk


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add a matrix product to `total` in place, in fp32."""
    if total.is_cuda:
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    return total.addmm_(a.float(), b.float())

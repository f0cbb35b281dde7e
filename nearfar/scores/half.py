r"""Log-sum-exp over rows and columns of \(\text{scale} \cdot Q K^\top\) for half-precision vectors on CUDA, by `kernels`.

The forward pass keeps two vectors. The backward pass makes blocks of dL/ds in half precision, each followed by the two matrix
products that turn it into gradients: memory is linear in n + m plus one block. Within
`shared_over_ranks` each rank makes its share of the rows.
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
"""How large a block of dL/ds may be; but never fewer rows, which would leave the matrix products too little to do."""

StatisticValues = dict[Statistic, Tensor]


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _kernels():
    """Imported when they are first needed: Triton takes its time."""
    from nearfar.scores import kernels

    return kernels


def can_use_kernels(q: Tensor, k: Tensor) -> bool:
    """Half precision, on CUDA, with Triton."""
    half = q.dtype == k.dtype and q.dtype in (torch.bfloat16, torch.float16)
    return half and q.is_cuda and q.ndim == k.ndim == 2 and q.shape[0] > 0 and k.shape[0] > 0 and _has_triton()


def half_stats(S: Scores, requested: tuple[Statistic, ...], both: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Statistics of a table of half-precision vectors: of the rows and, if asked, of the columns.

    Log-sum-exps over all candidates or all negatives and, where every row has one partner, its score come from the kernels;
    everything else is computed in single precision.
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
    """all_lse - pos_sum at once, where the kernels know each row's one partner; else None. (A bias makes no difference.)"""
    shift = _one_partner(S)
    if shift is None or S.private_scores is not None or S.diagonal is not None or not (S.score.is_dot and can_use_kernels(S.query, S.key)):
        return None
    S.check_same_on_ranks("half_cross_entropy")
    seats = _kernels().CandidateLayout(shift, S.exclude_self, False, S.row_skip, S.col_skip)
    rows, _, pos = half_lse(S.query, S.key, S.scale, S.score.lowest, seats)
    return rows - pos


def _by_kernels(S: Scores, asked: tuple[Statistic, ...], both: bool) -> tuple[StatisticValues, StatisticValues]:
    """What the kernels know of the shared columns, each way."""
    Seats, shift = _kernels().CandidateLayout, _one_partner(S)
    simple = shift is not None or S.row_id is None  # otherwise ids say who is positive
    if S.row_skip is not None and not simple:
        return {}, {}
    seats = Seats(shift, S.exclude_self, False, S.row_skip, S.col_skip)
    of_rows, of_columns, pos = StatisticValues(), StatisticValues(), None
    for what in asked:
        if what.reduction == "lse" and (what.candidate_set == "all" or (what.candidate_set == "neg" and simple)):
            hidden = seats._replace(hide_partners=what.candidate_set == "neg" and shift is not None)
            scale = S.scale if what.power == 1 else S.scale * what.power
            rows, columns, partners = half_lse(S.query, S.key, scale, S.score.lowest, hidden, both)
            of_rows[what], of_columns[what] = (_plus(x, S.bias, what.power) for x in (rows, columns))
            pos = _plus(partners, S.bias) if what.power == 1 else pos
    if shift is not None and pos is not None and (not both or (shift == 0 and len(S) == len(S.key))):
        known = {POS_SUM: pos, POS_LSE: pos} | ({POS_COUNT: torch.ones_like(pos)} if POS_COUNT in asked else {})
        of_rows |= known
        of_columns |= known  # opposite each other in a square table: the score of column j with its partner is that of row j
    elif S.row_id is None and of_rows:
        nothing = torch.zeros(len(S), device=S.query.device)
        of_rows |= {POS_SUM: nothing, POS_COUNT: nothing, POS_LSE: torch.full_like(nothing, -math.inf)}
    return of_rows, of_columns


def _plus(x: Tensor, bias: float | Tensor, power: float = 1) -> Tensor:
    return x + bias * power if isinstance(bias, Tensor) or bias else x


def _one_partner(S: Scores) -> int | None:
    """How many places on each row's only positive is; None where rows have none, or several."""
    n, m = len(S), len(S.key)
    if S.id_period == m >= n and not S.exclude_self and S.row_id is not None:
        return 0
    return S.id_period if S.exclude_self and S.id_period is not None and n == m == 2 * S.id_period else None


def half_lse(
    q: Tensor, k: Tensor, scale: float | Tensor, lowest: float, layout: CandidateLayout, both: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """In fp32: log-sum-exp over each row's candidates, `(n,)`, and, if `both`, over each column's, `(m,)`; and each row's score with
    its partner.

    `lowest`: -1 for unit vectors. Then, at a scale that is a number and not too large, one exponential relative to the
    largest possible score serves rows and columns; otherwise maxima move along, and columns take a pass of their own.
    """
    return _HalfLse.apply(q, k, *_scale_and_bound(scale, lowest), layout, both, q is k)  # type: ignore[return-value]


class _HalfLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None, seats: CandidateLayout, both: bool, itself: bool):
        q, k = q.contiguous(), k.contiguous()
        ranks = get_sharing_ranks()
        half = itself and not both and ranks.world_size == 1 and _kernels().is_mirrored(seats, len(q))
        rows, cols, pos = _statistics(q, k, scale, bound, seats, both, ranks, half)
        learned = isinstance(scale, Tensor)
        ctx.save_for_backward(q, k, rows, cols, *((scale,) if learned else ()))
        ctx.options = bound, seats, both, itself, None if learned else scale, ranks
        ctx.set_materialize_grads(False)
        return rows, cols, pos

    @staticmethod
    def backward(ctx, row_grad: Tensor | None, col_grad: Tensor | None, pos_grad: Tensor | None):  # type: ignore[override]
        refuse_second_derivative("half_lse")
        q, k, rows, cols, *learned = ctx.saved_tensors
        bound, seats, both, itself, scale, ranks = ctx.options
        scale = learned[0] if learned else scale
        missing = row_grad is None or pos_grad is None or col_grad is None
        nothing = torch.zeros(max(len(q), len(k)), device=q.device) if missing else rows
        weights = [nothing[: len(x)] if g is None else g for g, x in ((row_grad, q), (col_grad, k), (pos_grad, q))]
        size = _size_of(*weights) if q.dtype == torch.float16 else None
        weights = [w.contiguous() if size is None else w / size for w in weights]
        # Rows against themselves: the gradient by the columns is that by the rows, turned.
        turned = itself and not both and seats.row_skip is seats.col_skip
        lse = (rows, rows) if turned else (rows, cols if both else None)
        weight = weights[0], weights[0] if turned else weights[1], weights[2]
        dq, dk = _gradients(q, k, lse, weight, scale, bound, seats, turned, ctx.needs_input_grad[1], ranks)
        dscale = None
        if ctx.needs_input_grad[2]:  # of a turned table each pair was counted from both sides
            dscale = (dq.float() * q).sum().reshape(1) / (2 if turned else 1) * (1 if size is None else size)
        factor = scale if size is None else scale * size
        dk = None if dk is None else torch.mul(dk, factor, out=torch.empty_like(k))
        return dq.mul_(factor), dk, dscale, None, None, None, None


class _HalfClip(torch.autograd.Function):
    """`half_clip`, its gradients made on the way: the GPU need not wait until backward is called to go on."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None):
        q, k, n, ranks = q.contiguous(), k.contiguous(), q.shape[0], get_sharing_ranks()
        seats = _kernels().CandidateLayout(0)
        rows, cols, pos = _statistics(q, k, scale, bound, seats, True, ranks)
        if any(ctx.needs_input_grad[:3]):
            half, minus = torch.full((n,), 0.5, device=q.device), torch.full((n,), -1.0, device=q.device)
            dq, dk = _gradients(q, k, (rows, cols), (half, half, minus), scale, bound, seats, False, True, ranks)
            assert dk is not None
            dscale = (dq.float() * q).sum().reshape(1).div_(n) if ctx.needs_input_grad[2] else None
            ctx.save_for_backward(dq.mul_(scale / n), torch.mul(dk, scale / n, out=torch.empty_like(k)), dscale)
        return torch.add(rows, cols).mul_(0.5).sub_(pos).mean()

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        refuse_second_derivative("clip")
        return *(None if d is None else d * grad for d in ctx.saved_tensors), None


def half_clip(q: Tensor, k: Tensor, scale: float | Tensor, lowest: float) -> Tensor:
    """The mean over rows and columns of the InfoNCE of a square table of pairs, in fp32. `lowest`: as in `half_lse`."""
    check_same_on_ranks("clip", (q, k, scale if isinstance(scale, Tensor) else torch.tensor(scale)))
    return _HalfClip.apply(q, k, *_scale_and_bound(scale, lowest))  # type: ignore[return-value]


def _scale_and_bound(scale: float | Tensor, lowest: float) -> tuple[float | Tensor, float | None]:
    """The scale as the kernels take it, and the largest possible score, where all can share one exponential."""
    if isinstance(scale, Tensor):
        return scale.float().reshape(1), None
    scale = float(scale)
    return scale, scale if scale > 0 and -2 * lowest * scale < MAX_SCORE_SPREAD else None


def _statistics(
    q: Tensor, k: Tensor, scale: float | Tensor, bound: float | None, seats: CandidateLayout, both: bool, ranks: RankGroup,
    half_table: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Log-sum-exp of rows, of columns if asked for, and scores of partners if there are any. `half`: as in `bounded_sums`."""
    kernels = _kernels()
    n = q.shape[0]
    (at,) = ranks.split_own_rows(n, n)
    own, mine = q if ranks.world_size == 1 else q[at], _of_rows(seats, at, ranks)
    if bound is not None:
        sums = kernels.sum_bounded_exponentials(own, k, scale, bound, mine, at.start, both, half_table)
        ranks.sum([sums[own.shape[0] :]])
        sums.log_().add_(bound)
        rows, cols = sums[: own.shape[0]], sums[own.shape[0] :]
    else:
        rows = kernels.online_lse(own, k, scale, mine, at.start)
        cols = _online_columns(q, k, scale, seats, ranks) if both else rows.new_empty(0)
    pos = rows.new_empty(0) if seats.shift is None else ranks.gather(kernels.partner_scores(own, k, scale, seats.shift, at.start), n)
    return ranks.gather(rows, n), cols, pos


def _of_rows(seats: CandidateLayout, at: slice, ranks: RankGroup) -> CandidateLayout:
    """Cut `seats` to this rank's rows."""
    return seats if seats.row_skip is None or ranks.world_size == 1 else seats._replace(row_skip=seats.row_skip[at])


def _online_columns(q: Tensor, k: Tensor, scale: float | Tensor, seats: CandidateLayout, ranks: RankGroup) -> Tensor:
    """Return the log-sum-exp of columns, which take the part of rows."""
    (at,) = ranks.split_own_rows(len(k), len(k))
    shift = None if seats.shift is None else -seats.shift % len(q)
    turned = seats._replace(shift=shift, row_skip=seats.col_skip, col_skip=seats.row_skip)
    return ranks.gather(_kernels().online_lse(k[at], q, scale, _of_rows(turned, at, ranks), at.start), len(k))


def _size_of(*grads: Tensor) -> Tensor:
    """The largest weight: divided by it, dL/ds fits the narrow range of fp16. (bf16 has the range of fp32.)"""
    return torch.stack([g.abs().amax() for g in grads]).amax().clamp_min(torch.finfo(torch.float32).tiny)


def _gradients(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor], scale: float | Tensor,
    bound: float | None, seats: CandidateLayout, turned: bool, of_keys: bool, ranks: RankGroup,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Gradients by q and k, without scale. `turned`: k is q, and dL/ds comes with its transpose added: one product does."""
    kernels = _kernels()
    size = min(max(MIN_BLOCK_ROWS, MAX_BLOCK_BYTES // (2 * len(k)) // 128 * 128), len(q))
    buffer = q.new_empty(size, len(k))
    dq = torch.empty_like(q) if ranks.world_size == 1 else torch.zeros_like(q)
    dk = k.new_zeros(k.shape, dtype=torch.float32) if of_keys and not turned else None
    for at in ranks.split_own_rows(len(q), size):
        block = buffer[: at.stop - at.start]
        here = (lse[0][at], lse[1]), (weight[0][at], weight[1], weight[2])
        part = seats if seats.row_skip is None else seats._replace(row_skip=seats.row_skip[at])
        kernels.fill_score_gradients(q[at], k, *here, scale, bound, part, at.start, turned, block)
        torch.mm(block, k, out=dq[at])
        if dk is not None:
            dk = _add_product(dk, block.T, q[at])
    ranks.sum([g for g in (dq, dk) if g is not None])
    return dq, dk


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total + a b, the sum in fp32, in place."""
    if total.is_cuda:
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    return total.addmm_(a.float(), b.float())

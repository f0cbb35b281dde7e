r"""Log-sum-exp over rows and columns of \(\text{scale} \cdot Q K^\top\) for half-precision vectors on CUDA, by `kernels`.

The forward pass keeps two vectors. The backward pass makes blocks of dL/ds in half precision, each followed by the two matrix
products that turn it into gradients: memory is linear in n + m plus one block.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearfar.core.ranks import world
from nearfar.scores.fused import LARGEST_SPREAD
from nearfar.scores.rowmap import refuse_second_derivative
from nearfar.scores.statistics import ALL_LSE, POS_COUNT, POS_SUM, Statistic

if TYPE_CHECKING:
    from nearfar.scores.table import Scores

BLOCK_BYTES, BLOCK_ROWS = 1 << 27, 4096
"""How large a block of dL/ds may be; but never fewer rows, which would leave the matrix products too little to do."""
LOG2E = math.log2(math.e)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def runs_on_kernels(q: Tensor, k: Tensor) -> bool:
    """Half precision, on CUDA, with Triton, on one rank."""
    half = q.dtype == k.dtype and q.dtype in (torch.bfloat16, torch.float16)
    return half and q.is_cuda and q.ndim == k.ndim == 2 and len(q) > 0 and len(k) > 0 and world() == 1 and _has_triton()


def half_stats(S: Scores, asked: tuple[Statistic, ...], both: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Statistics of a table of half-precision vectors: of the rows and, if asked, of the columns.

    The log-sum-exp over all candidates and, where every row has one partner, its score come from the kernels; everything
    else is computed in single precision.
    """
    found = _by_kernels(S, asked, both)
    rest = tuple(what for what in asked if what not in found[0])
    if rest:
        query = S.query.float()
        full = replace(S, query=query, key=query if S.key is S.query else S.key.float())
        found[0].update(zip(rest, full.stats(*rest), strict=True))
        found[1].update(zip(rest, full.T.stats(*rest), strict=True) if both else ())
    return tuple(found[0][what] for what in asked), tuple(found[1][what] for what in asked) if both else ()


def _by_kernels(S: Scores, asked: tuple[Statistic, ...], both: bool) -> tuple[dict[Statistic, Tensor], dict[Statistic, Tensor]]:
    if not (ALL_LSE in asked and S.score.is_dot and S.row_skip is None and S.own is None and runs_on_kernels(S.query, S.key)):
        return {}, {}
    shift = _one_partner(S)
    rows, cols, pos = half_lse(S.query, S.key, S.scale, S.score.lowest, shift or 0, S.exclude_self, both)
    if isinstance(S.bias, Tensor) or S.bias:
        rows, cols, pos = rows + S.bias, cols + S.bias, pos + S.bias
    of_rows, of_cols = {ALL_LSE: rows}, {ALL_LSE: cols}
    if shift is not None and (not both or shift == 0):
        known = {POS_SUM: pos} | ({POS_COUNT: torch.ones_like(rows)} if POS_COUNT in asked else {})
        of_rows |= known
        of_cols |= known  # opposite each other in a square table: the score of column j with its partner is that of row j
    return of_rows, of_cols


def _one_partner(S: Scores) -> int | None:
    """How many places on each row's only positive is; None where rows have none, or several."""
    n, m = len(S), len(S.key)
    if S.period == n == m and not S.exclude_self:
        return 0
    return S.period if S.exclude_self and S.period is not None and n == m == 2 * S.period else None


def half_lse(
    q: Tensor, k: Tensor, scale: float | Tensor, lowest: float = -math.inf, shift: int = 0, exclude_self: bool = False, both: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """In fp32: log-sum-exp of every row, `(n,)`, and, if `both`, of every column, `(m,)`; and each row's score with the column
    `shift` places on.

    `lowest`: -1 for unit vectors. Then, at a scale that is a number and not too large, one exponential relative to the
    largest possible score serves rows and columns; otherwise maxima move along, and columns take a pass of their own.
    """
    known = isinstance(scale, (int, float)) and scale > 0 and -2 * lowest * scale < LARGEST_SPREAD
    bound = float(scale) * LOG2E if known else None
    as_tensor = scale.float().reshape(1) if isinstance(scale, Tensor) else torch.full((1,), float(scale), device=q.device)
    return _HalfLse.apply(q, k, as_tensor, bound, shift, exclude_self, both)  # type: ignore[return-value]


class _HalfLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: Tensor, bound: float | None, shift: int, exclude_self: bool, both: bool):
        from nearfar.scores import kernels

        q, k = q.contiguous(), k.contiguous()
        scale2 = scale.detach() * LOG2E
        if bound is not None:
            rows, cols, pos = kernels.bounded_lse(q, k, scale2, bound, shift, exclude_self, both)
        else:
            rows, pos = kernels.online_lse(q, k, scale2, shift, exclude_self)
            cols = kernels.online_lse(k, q, scale2, 0, exclude_self)[0] if both else rows.new_zeros(1)
        ctx.save_for_backward(q, k, scale2, rows, cols)
        ctx.options = bound, shift, exclude_self
        ctx.both, ctx.itself = both, q.data_ptr() == k.data_ptr()
        return rows / LOG2E, cols / LOG2E, pos / LOG2E

    @staticmethod
    def backward(ctx, row_grad: Tensor, col_grad: Tensor, pos_grad: Tensor):  # type: ignore[override]
        refuse_second_derivative("half_lse")
        q, k, scale2, rows, cols = ctx.saved_tensors
        size = _size_of(row_grad, col_grad, pos_grad) if q.dtype == torch.float16 else None
        weight, col_weight, pos_weight = (g if size is None else g / size for g in (row_grad, col_grad, pos_grad))
        turned = ctx.itself and not ctx.both  # rows against themselves: the gradient by the columns is that by the rows, turned
        lse = (rows, rows) if turned else (rows, cols if ctx.both else None)
        bound, shift, exclude_self = ctx.options
        weights = weight, weight if turned else col_weight, pos_weight
        dq, dk = _gradients(q, k, lse, weights, scale2, bound, shift, exclude_self, turned)
        factor = (scale2 / LOG2E if size is None else scale2 / LOG2E * size).reshape(())
        dscale = None
        if ctx.needs_input_grad[2]:  # of a turned table each pair was counted from both sides
            dscale = (dq.float() * q).sum().reshape(1) / (2 if turned else 1) * (1 if size is None else size)
        dk = None if dk is None else torch.mul(dk, factor, out=torch.empty_like(k))
        return dq.mul_(factor), dk, dscale, None, None, None, None


def _size_of(*grads: Tensor) -> Tensor:
    """The largest weight: divided by it, dL/ds fits the narrow range of fp16. (bf16 has the range of fp32.)"""
    return torch.stack([g.abs().amax() for g in grads]).amax().clamp_min(torch.finfo(torch.float32).tiny)


def _gradients(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor], scale2: Tensor,
    bound: float | None, shift: int, exclude_self: bool, turned: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Gradients by q and k, without scale. `turned`: k is q, and dL/ds comes with its transpose added: one product does."""
    from nearfar.scores import kernels

    size = min(max(BLOCK_ROWS, BLOCK_BYTES // (2 * len(k)) // 128 * 128), len(q))
    buffer = q.new_empty(size, len(k))
    dq = torch.empty_like(q)
    dk = None if turned else k.new_zeros(k.shape, dtype=torch.float32)
    for i in range(0, len(q), size):
        at = slice(i, min(i + size, len(q)))
        block = buffer[: at.stop - i]
        here = (lse[0][at], lse[1]), (weight[0][at], weight[1], weight[2])
        kernels.slopes(q[at], k, *here, i, shift, scale2, bound, exclude_self, turned, block)
        torch.mm(block, k, out=dq[at])
        if dk is not None:
            torch.addmm(dk, block.T, q[at], out_dtype=torch.float32, out=dk)
    return dq, dk

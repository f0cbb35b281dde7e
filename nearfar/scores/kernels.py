r"""Triton kernels under `fused`, for half-precision vectors on CUDA: tiles of \(Q K^\top\) that are reduced where they are made.

A program makes one tile of scores in registers, with the tensor cores, and keeps only sums of exponentials; or it writes the
gradient of a block of scores in half precision, and two ordinary matrix products do the rest. (Tiles that hold d = 512
accumulators of a gradient do not fit into registers; a block of scores does fit into memory.) Statistics are fp32 and in units
of log 2, because the hardware's exponential is a power of two.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = 1.4426950408889634
TILE = {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8, "num_stages": 3}
GROUP = 8
"""Rows of tiles that are walked together, so that their columns stay in the cache."""


@triton.jit
def _corner(n, m, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Which tile this program makes: GROUP rows of tiles at a time, column by column."""
    program = tl.program_id(0)
    down, across = tl.cdiv(n, BM), tl.cdiv(m, BN)
    first = (program // (GROUP * across)) * GROUP
    height = min(down - first, GROUP)
    inside = program % (GROUP * across)
    return (first + inside % height) * BM, (inside // height) * BN


@triton.jit
def _scores(Q, K, row, col, n, m, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """One tile of q·k, accumulated in fp32. Loads are masked unless all sizes are multiples of the tile's."""
    r, c, d = row + tl.arange(0, BM), col + tl.arange(0, BN), tl.arange(0, BK)
    q = Q + r.to(tl.int64)[:, None] * D + d[None, :]
    k = K + c.to(tl.int64)[None, :] * D + d[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, D, BK):
        if EVEN:
            a, b = tl.load(q), tl.load(k)
        else:
            within = start + d < D
            a = tl.load(q, mask=(r < n)[:, None] & within[None, :], other=0.0)
            b = tl.load(k, mask=(c < m)[None, :] & within[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
        q += BK
        k += BK
    return acc


@triton.jit
def _keep_partners(POS, s, r, c, n, m, shift):
    """Stores the scores of rows with their partners, the columns `shift` places on, that lie in this tile."""
    partner = (r + shift) % m
    mine = partner[:, None] == c[None, :]
    here = (r < n) & (partner >= tl.min(c, 0)) & (partner <= tl.max(c, 0))
    tl.store(POS + r, tl.sum(tl.where(mine, s, 0.0), 1), mask=here)


@triton.jit
def _bounded_sums(
    Q, K, ROWS, COLS, POS, SCALE, n, m, bound, shift, D: tl.constexpr, SELF: tl.constexpr, BOTH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Adds a tile's sums of 2^(s - bound) to its rows and, if asked, to its columns."""
    row, col = _corner(n, m, BM, BN, GROUP)
    s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * tl.load(SCALE)
    r, c = row + tl.arange(0, BM), col + tl.arange(0, BN)
    if _may_hold_partners(row, col, shift, m, BM, BN):
        _keep_partners(POS, s, r, c, n, m, shift)
    p = tl.exp2(s - bound)
    if not EVEN:
        p = tl.where((r < n)[:, None] & (c < m)[None, :], p, 0.0)
    if SELF:
        p = tl.where(r[:, None] == c[None, :], 0.0, p)
    tl.atomic_add(ROWS + r, tl.sum(p, 1), mask=r < n, sem="relaxed")
    if BOTH:
        tl.atomic_add(COLS + c, tl.sum(p, 0), mask=c < m, sem="relaxed")


@triton.jit
def _may_hold_partners(row, col, shift, m, BM: tl.constexpr, BN: tl.constexpr):
    """Whether a partner of one of the tile's rows may be among its columns; partners beyond the last column begin anew."""
    first, last = row + shift, row + shift + BM - 1
    straight = (first < col + BN) & (last >= col)
    wrapped = (first - m < col + BN) & (last - m >= col)
    return straight | wrapped


@triton.jit
def _online_sums(
    Q, K, TOP, SUM, POS, SCALE, n, m, span, shift, D: tl.constexpr, SELF: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Each row's maximum and sum over `span` columns, the maximum moving along: safe for scores of any size."""
    row, part = tl.program_id(0) * BM, tl.program_id(1)
    r = row + tl.arange(0, BM)
    scale = tl.load(SCALE)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for col in range(part * span, min(part * span + span, m), BN):
        s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * scale
        c = col + tl.arange(0, BN)
        if _may_hold_partners(row, col, shift, m, BM, BN):
            _keep_partners(POS, s, r, c, n, m, shift)
        s = tl.where((c < m)[None, :], s, -float("inf"))
        if SELF:
            s = tl.where(r[:, None] == c[None, :], -float("inf"), s)
        higher = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp2(top - safe) + tl.sum(tl.exp2(s - safe[:, None]), 1)
        top = higher
    tl.store(TOP + part * n + r, top, mask=r < n)
    tl.store(SUM + part * n + r, total, mask=r < n)


@triton.jit
def _slopes(
    Q, K, ROW_LSE, COL_LSE, ROW_WEIGHT, COL_WEIGHT, POS_WEIGHT, OUT, SCALE, n, m, offset, shift, bound,
    D: tl.constexpr, SELF: tl.constexpr, BOTH: tl.constexpr, BOUNDED: tl.constexpr, TURNED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Writes a block of dL/ds: each row's weight times its softmax, if asked each column's, and the partners' weights."""
    row, col = _corner(n, m, BM, BN, GROUP)
    s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * tl.load(SCALE)
    r, c = row + tl.arange(0, BM), col + tl.arange(0, BN)
    rows, cols = r < n, c < m
    lse = tl.load(ROW_LSE + r, mask=rows, other=float("inf"))
    weight = tl.load(ROW_WEIGHT + r, mask=rows, other=0.0)
    if BOUNDED and BOTH:  # one exponential serves both: 2^(s - bound) (w_i 2^(bound - lse_i) + w_j 2^(bound - lse_j))
        col_lse = tl.load(COL_LSE + c, mask=cols, other=float("inf"))
        col_weight = tl.load(COL_WEIGHT + c, mask=cols, other=0.0)
        g = tl.exp2(s - bound) * ((weight * tl.exp2(bound - lse))[:, None] + (col_weight * tl.exp2(bound - col_lse))[None, :])
    else:
        g = tl.exp2(s - lse[:, None]) * weight[:, None]
        if BOTH:
            col_lse = tl.load(COL_LSE + c, mask=cols, other=float("inf"))
            col_weight = tl.load(COL_WEIGHT + c, mask=cols, other=0.0)
            g += tl.exp2(s - col_lse[None, :]) * col_weight[None, :]
    if SELF:
        g = tl.where((r + offset)[:, None] == c[None, :], 0.0, g)
    if _may_hold_partners(row + offset, col, shift, m, BM, BN):
        pos = tl.load(POS_WEIGHT + offset + r, mask=rows, other=0.0)
        g += tl.where(((r + offset + shift) % m)[:, None] == c[None, :], pos[:, None], 0.0)
    if TURNED:  # noqa: SIM102  (known when compiling, unlike the next)
        if _may_hold_partners(row + offset, col, m - shift, m, BM, BN):
            pos = tl.load(POS_WEIGHT + c, mask=cols, other=0.0)
            g += tl.where((r + offset)[:, None] == ((c + shift) % m)[None, :], pos[None, :], 0.0)
    at = OUT + r.to(tl.int64)[:, None] * m + c[None, :]
    if EVEN:
        tl.store(at, g.to(OUT.dtype.element_ty))
    else:
        tl.store(at, g.to(OUT.dtype.element_ty), mask=rows[:, None] & cols[None, :])


def _even(n: int, m: int, d: int) -> bool:
    return n % TILE["BM"] == 0 and m % TILE["BN"] == 0 and d % TILE["BK"] == 0


def _tiles(n: int, m: int) -> tuple[int]:
    return (triton.cdiv(n, TILE["BM"]) * triton.cdiv(m, TILE["BN"]),)


def bounded_lse(
    q: Tensor, k: Tensor, scale: Tensor, bound: float, shift: int, exclude_self: bool, both: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """log2-sum-exp of rows and columns from one table, for scores at most `bound` that do not differ too much; and the
    scores of rows with their partners, the columns `shift` places on (modulo m). All in units of log 2.

    `scale`, here and below: a tensor of one number, in units of log 2.
    """
    (n, d), m = q.shape, len(k)
    sums = q.new_zeros(n + (m if both else 1), dtype=torch.float32)
    pos = q.new_empty(n, dtype=torch.float32)
    rows, cols = sums[:n], sums[n:]
    _bounded_sums[_tiles(n, m)](
        q, k, rows, cols, pos, scale, n, m, bound, shift, d, exclude_self, both, GROUP=GROUP, EVEN=_even(n, m, d), **TILE
    )  # fmt: skip
    sums.log2_().add_(bound)
    return rows, cols, pos


def online_lse(q: Tensor, k: Tensor, scale: Tensor, shift: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
    """log2-sum-exp of the rows, for scores of any size, and the scores of their partners."""
    (n, d), m = q.shape, len(k)
    down, across = triton.cdiv(n, TILE["BM"]), triton.cdiv(m, TILE["BN"])
    span = triton.cdiv(across, max(1, min(across, 512 // down))) * TILE["BN"]
    parts = triton.cdiv(m, span)
    top, total = (q.new_empty(parts, n, dtype=torch.float32) for _ in range(2))
    pos = q.new_empty(n, dtype=torch.float32)
    _online_sums[(down, parts)](q, k, top, total, pos, scale, n, m, span, shift, d, exclude_self, EVEN=_even(n, m, d), **TILE)
    return ((total.log2() + top) / LOG2E).logsumexp(0) * LOG2E, pos


def slopes(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor],
    offset: int, shift: int, scale: Tensor, bound: float | None, exclude_self: bool, turned: bool, out: Tensor,
) -> None:  # fmt: skip
    """Fill `out` (n, m) with the gradient of the scores of some rows, whose first is row `offset` of the whole table.

    `lse`: of these rows and, where columns count too, of all columns. `weight`: of both, and of all rows' partners.
    `turned`: the transpose of the partners' part is added too.
    """
    (n, d), m = q.shape, len(k)
    both = lse[1] is not None
    of_cols = (lse[1], weight[1]) if both else (lse[0], weight[0])
    _slopes[_tiles(n, m)](
        q, k, lse[0], of_cols[0], weight[0], of_cols[1], weight[2], out, scale, n, m, offset, shift, bound or 0.0,
        d, exclude_self, both, bound is not None, turned, GROUP=GROUP, EVEN=_even(n, m, d), **TILE,
    )  # fmt: skip

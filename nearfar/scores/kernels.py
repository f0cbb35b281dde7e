r"""Triton kernels under `half`, for half-precision vectors on CUDA: tiles of \(Q K^\top\) that are reduced where they are made.

A program makes tiles of scores in registers, with the tensor cores, and keeps only sums of exponentials; or it writes the
gradient of a block of scores in half precision, and two ordinary matrix products do the rest. (Tiles that hold d = 512
accumulators of a gradient do not fit into registers; a block of scores does fit into memory.) Statistics are fp32. Inside,
scores are in units of log 2, because the hardware's exponential is a power of two.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)
SUM_TILE = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 3}
"""Small enough that two programs share a multiprocessor: one takes exponentials while the other multiplies."""
GRADIENT_TILE = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 16, "num_warps": 8, "num_stages": 3}
"""As large as accumulators allow: these tiles are written out, and reading their vectors is what they wait for."""
TILE_ROWS_PER_GROUP = 8
"""Rows of tiles that are walked together, so that their columns stay in the cache; where tiles are smaller, fewer."""


class CandidateLayout(NamedTuple):
    """Who sits opposite whom, and who is no candidate: what the kernels must know of a table besides its scores."""

    shift: int | None = None
    """Each row's partner is the column so many places on, modulo the number of columns; None: nobody has one."""
    exclude_self: bool = False
    hide_partners: bool = False
    """Partners are no candidates: what is left are the negatives."""
    row_skip: Tensor | None = None
    """Columns with the same id here are no candidates, unless they are the partner; -1 equals nothing. With `col_skip`."""
    col_skip: Tensor | None = None


@triton.jit
def _corner(program, n, m, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Where a tile begins: GROUP rows of tiles at a time, column by column."""
    down, across = tl.cdiv(n, BM), tl.cdiv(m, BN)
    first = (program // (GROUP * across)) * GROUP
    height = min(down - first, GROUP)
    inside = program % (GROUP * across)
    return (first + inside % height) * BM, (inside // height) * BN


@triton.jit
def _upper_corner(program, n, BM: tl.constexpr, GROUP: tl.constexpr):
    """As `_corner`, of a square table's tiles on and above the diagonal: the triangle, its lower half turned around, is a rectangle."""
    side = tl.cdiv(n, BM)
    even = 1 - side % 2
    a, b = _corner(program, (side + 1) // 2, side + even, 1, 1, GROUP)
    upper = b >= a + even
    return tl.where(upper, a, side - a - even) * BM, tl.where(upper, b - even, side - 1 - b) * BM


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
def _may_hold_partners(row, col, shift, m, BM: tl.constexpr, BN: tl.constexpr):
    """Whether a partner of one of the tile's rows may be among its columns; partners beyond the last column begin anew."""
    first, last = row + shift, row + shift + BM - 1
    straight = (first < col + BN) & (last >= col)
    wrapped = (first - m < col + BN) & (last - m >= col)
    return straight | wrapped


@triton.jit
def _partner_scores(Q, K, POS, SCALE, n, m, offset, shift, D: tl.constexpr, LEARNED: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """Scores of rows with their partners. (Picked out of the tiles they would make every tile slower.)"""
    r, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    q = Q + r.to(tl.int64)[:, None] * D + d[None, :]
    k = K + ((offset + r + shift) % m).to(tl.int64)[:, None] * D + d[None, :]
    s = tl.zeros((BM,), tl.float32)
    for start in range(0, D, BK):
        within = (r < n)[:, None] & (start + d < D)[None, :]
        s += tl.sum(tl.load(q + start, mask=within, other=0.0).to(tl.float32) * tl.load(k + start, mask=within, other=0.0), 1)
    tl.store(POS + r, s * _number(SCALE, LEARNED), mask=r < n)


@triton.jit
def _number(X, LEARNED: tl.constexpr):
    """A scale is a number or, if it is learned, a tensor that holds one."""
    if LEARNED:
        return tl.load(X)
    else:
        return X


@triton.jit
def _candidates(
    x, nothing, ROW_SKIP, COL_SKIP, r, place, c, n, m, shift,
    PARTNER: tl.constexpr, SELF: tl.constexpr, HIDE: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """A tile with `nothing` in place of what are no candidates. `r`: rows of this call, `place`: the same in the whole table."""
    if SELF:
        x = tl.where(place[:, None] == c[None, :], nothing, x)
    if HIDE:
        x = tl.where(((place + shift) % m)[:, None] == c[None, :], nothing, x)
    if SKIP:
        a = tl.load(ROW_SKIP + r, mask=r < n, other=-1)
        b = tl.load(COL_SKIP + c, mask=c < m, other=-1)
        out = (a[:, None] == b[None, :]) & (a >= 0)[:, None]
        if PARTNER:
            out = out & (((place + shift) % m)[:, None] != c[None, :])
        x = tl.where(out, nothing, x)
    return x


@triton.jit
def _bounded_sums(
    Q, K, ROWS, COLS, ROW_SKIP, COL_SKIP, SCALE, n, m, offset, bound, shift,
    D: tl.constexpr, LEARNED: tl.constexpr, BOTH: tl.constexpr, MIRRORED: tl.constexpr,
    PARTNER: tl.constexpr, SELF: tl.constexpr, HIDE: tl.constexpr, SKIP: tl.constexpr,
    PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Adds tiles' sums of 2^(s - bound) to their rows and, if asked, to their columns.

    MIRRORED: the table equals its transpose; of two tiles that mirror each other one is made, and its columns are rows too.
    """
    scale = _number(SCALE, LEARNED) * LOG2E
    tiles = tl.cdiv(n, BM) * (tl.cdiv(n, BM) + 1) // 2 if MIRRORED else tl.cdiv(n, BM) * tl.cdiv(m, BN)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        if MIRRORED:
            row, col = _upper_corner(tile, n, BM, GROUP)
        else:
            row, col = _corner(tile, n, m, BM, BN, GROUP)
        s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * scale
        r, c = row + tl.arange(0, BM), col + tl.arange(0, BN)
        place = offset + r
        p = tl.exp2(s - bound * LOG2E)
        if not EVEN:
            p = tl.where((r < n)[:, None] & (c < m)[None, :], p, 0.0)
        p = _candidates(p, 0.0, ROW_SKIP, COL_SKIP, r, place, c, n, m, shift, PARTNER, SELF, HIDE, SKIP)
        tl.atomic_add(ROWS + r, tl.sum(p, 1), mask=r < n, sem="relaxed")
        if BOTH:
            tl.atomic_add(COLS + c, tl.sum(p, 0), mask=c < m, sem="relaxed")
        if MIRRORED:
            tl.atomic_add(ROWS + c, tl.sum(p, 0), mask=(c < m) & (c >= row + BM), sem="relaxed")


@triton.jit
def _online_sums(
    Q, K, TOP, SUM, ROW_SKIP, COL_SKIP, SCALE, n, m, offset, span, shift,
    D: tl.constexpr, LEARNED: tl.constexpr, PARTNER: tl.constexpr, SELF: tl.constexpr, HIDE: tl.constexpr, SKIP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Each row's maximum and sum over `span` columns, the maximum moving along: safe for scores of any size."""
    row, part = tl.program_id(0) * BM, tl.program_id(1)
    r = row + tl.arange(0, BM)
    place = offset + r
    scale = _number(SCALE, LEARNED) * LOG2E
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for col in range(part * span, min(part * span + span, m), BN):
        s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * scale
        c = col + tl.arange(0, BN)
        s = tl.where((c < m)[None, :], s, -float("inf"))
        s = _candidates(s, -float("inf"), ROW_SKIP, COL_SKIP, r, place, c, n, m, shift, PARTNER, SELF, HIDE, SKIP)
        higher = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp2(top - safe) + tl.sum(tl.exp2(s - safe[:, None]), 1)
        top = higher
    tl.store(TOP + part * n + r, top / LOG2E, mask=r < n)
    tl.store(SUM + part * n + r, total, mask=r < n)


@triton.jit
def _slopes(
    Q, K, ROW_LSE, COL_LSE, ROW_WEIGHT, COL_WEIGHT, POS_WEIGHT, ROW_SKIP, COL_SKIP, OUT, SCALE, n, m, offset, shift, bound,
    D: tl.constexpr, LEARNED: tl.constexpr, BOTH: tl.constexpr, BOUNDED: tl.constexpr, TURNED: tl.constexpr,
    PARTNER: tl.constexpr, SELF: tl.constexpr, HIDE: tl.constexpr, SKIP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Writes a block of dL/ds: each row's weight times its softmax, if asked each column's, and the partners' weights."""
    row, col = _corner(tl.program_id(0), n, m, BM, BN, GROUP)
    s = _scores(Q, K, row, col, n, m, D, BM, BN, BK, EVEN) * (_number(SCALE, LEARNED) * LOG2E)
    r, c = row + tl.arange(0, BM), col + tl.arange(0, BN)
    place, rows, cols = offset + r, r < n, c < m
    lse = tl.load(ROW_LSE + r, mask=rows, other=float("inf")) * LOG2E
    weight = tl.load(ROW_WEIGHT + r, mask=rows, other=0.0)
    if BOTH:
        col_lse = tl.load(COL_LSE + c, mask=cols, other=float("inf")) * LOG2E
        col_weight = tl.load(COL_WEIGHT + c, mask=cols, other=0.0)
    if BOUNDED and BOTH:  # one exponential serves both: 2^(s - bound) (w_i 2^(bound - lse_i) + w_j 2^(bound - lse_j))
        high = bound * LOG2E
        g = tl.exp2(s - high) * ((weight * tl.exp2(high - lse))[:, None] + (col_weight * tl.exp2(high - col_lse))[None, :])
    else:
        g = tl.exp2(s - lse[:, None]) * weight[:, None]
        if BOTH:
            g += tl.exp2(s - col_lse[None, :]) * col_weight[None, :]
    g = _candidates(g, 0.0, ROW_SKIP, COL_SKIP, r, place, c, n, m, shift, PARTNER, SELF, HIDE, SKIP)
    if PARTNER:  # noqa: SIM102
        if _may_hold_partners(offset + row, col, shift, m, BM, BN):
            pos = tl.load(POS_WEIGHT + place, mask=rows, other=0.0)
            g += tl.where(((place + shift) % m)[:, None] == c[None, :], pos[:, None], 0.0)
            if TURNED:
                pos = tl.load(POS_WEIGHT + c, mask=cols, other=0.0)
                g += tl.where(place[:, None] == ((c + shift) % m)[None, :], pos[None, :], 0.0)
    at = OUT + r.to(tl.int64)[:, None] * m + c[None, :]
    if EVEN:
        tl.store(at, g.to(OUT.dtype.element_ty))
    else:
        tl.store(at, g.to(OUT.dtype.element_ty), mask=rows[:, None] & cols[None, :])


def is_mirrored(layout: CandidateLayout, n: int) -> bool:
    """Whether a table of n rows against themselves equals its transpose: who is opposite whom, and who is left out, both ways."""
    return (layout.shift is None or 2 * layout.shift == n) and layout.row_skip is layout.col_skip


def sum_bounded_exponentials(
    q: Tensor,
    k: Tensor,
    scale: float | Tensor,
    bound: float,
    layout: CandidateLayout,
    offset: int = 0,
    both: bool = False,
    half_table: bool = False,
) -> Tensor:
    """Sums of e^(s - bound) over the candidates of rows and, if `both`, after them of columns, from one table. For scores at most
    `bound` that do not differ too much. `half`: k is q and the table `mirrored`, so that half of it is enough.

    Here and below: `scale` is a number or a tensor of one; `q` may be some rows of a table, the first of which is row `offset`
    there. `seats` are of the whole table, but for `row_skip`.
    """
    (n, d), m = q.shape, k.shape[0]
    sums = q.new_zeros(n + m if both else n, dtype=torch.float32)
    programs = max(1, min(_tiles(n, m, SUM_TILE), 2 * _processors(q.device)))  # of half a table the last ones may find nothing to do
    assert SUM_TILE["BM"] == SUM_TILE["BN"] or not half_table
    _bounded_sums[(programs,)](
        q, k, sums, sums[n:] if both else sums, *_skips(q, layout), scale, n, m, offset, bound, layout.shift or 0,
        d, isinstance(scale, Tensor), both, half_table, *_flags(layout), programs, GROUP=TILE_ROWS_PER_GROUP, EVEN=_even(n, m, d, SUM_TILE), **SUM_TILE,
    )  # fmt: skip
    return sums


def online_lse(q: Tensor, k: Tensor, scale: float | Tensor, layout: CandidateLayout, offset: int = 0) -> Tensor:
    """log-sum-exp over the candidates of rows, for scores of any size."""
    (n, d), m = q.shape, k.shape[0]
    down, across = triton.cdiv(n, SUM_TILE["BM"]), triton.cdiv(m, SUM_TILE["BN"])
    span = triton.cdiv(across, max(1, min(across, 1024 // max(1, down)))) * SUM_TILE["BN"]
    parts = triton.cdiv(m, span)
    top, total = (q.new_empty(parts, n, dtype=torch.float32) for _ in range(2))
    _online_sums[(down, parts)](
        q, k, top, total, *_skips(q, layout), scale, n, m, offset, span, layout.shift or 0,
        d, isinstance(scale, Tensor), *_flags(layout), EVEN=_even(n, m, d, SUM_TILE), **SUM_TILE,
    )  # fmt: skip
    return (total.log_() + top).logsumexp(0)


def partner_scores(q: Tensor, k: Tensor, scale: float | Tensor, shift: int, offset: int = 0) -> Tensor:
    """Scores of rows with the columns `shift` places on."""
    (n, d), m = q.shape, k.shape[0]
    found = q.new_empty(n, dtype=torch.float32)
    _partner_scores[(triton.cdiv(n, 64),)](q, k, found, scale, n, m, offset, shift, d, isinstance(scale, Tensor), BM=64, BK=64)
    return found


def fill_score_gradients(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor],
    scale: float | Tensor, bound: float | None, layout: CandidateLayout, offset: int, turned: bool, out: Tensor,
) -> None:  # fmt: skip
    """Fill `out` (n, m) with the gradient of the scores of some rows.

    `lse`: of these rows and, where columns count too, of all columns. `weight`: of both, and of all rows' partners.
    `turned`: the transpose of the partners' part is added too.
    """
    (n, d), m = q.shape, k.shape[0]
    both = lse[1] is not None
    of_cols = (lse[1], weight[1]) if both else (lse[0], weight[0])
    _slopes[(_tiles(n, m, GRADIENT_TILE),)](
        q, k, lse[0], of_cols[0], weight[0], of_cols[1], weight[2], *_skips(q, layout), out, scale, n, m, offset, layout.shift or 0,
        bound or 0.0, d, isinstance(scale, Tensor), both, bound is not None, turned, *_flags(layout),
        EVEN=_even(n, m, d, GRADIENT_TILE), **GRADIENT_TILE,
    )  # fmt: skip


def _flags(seats: CandidateLayout) -> tuple[bool, bool, bool, bool]:
    return seats.shift is not None, seats.exclude_self, seats.hide_partners, seats.row_skip is not None


def _skips(q: Tensor, seats: CandidateLayout) -> tuple[Tensor, Tensor]:
    """A kernel wants some pointer even where it never looks."""
    return (q, q) if seats.row_skip is None or seats.col_skip is None else (seats.row_skip, seats.col_skip)


def _even(n: int, m: int, d: int, tile: dict[str, int]) -> bool:
    return n % tile["BM"] == 0 and m % tile["BN"] == 0 and d % tile["BK"] == 0


def _tiles(n: int, m: int, tile: dict[str, int]) -> int:
    return triton.cdiv(n, tile["BM"]) * triton.cdiv(m, tile["BN"])


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1

r"""Triton kernels of `half` for half-precision vectors on CUDA.

Some programs compute tiles of scores \(Q K^\top\) in registers, with the tensor cores, and reduce them there
to sums of exponentials. Other programs write the gradient of a block of scores in half precision, and two
ordinary matrix products do the rest. (Tiles with d = 512 accumulators of a gradient do not fit into
registers, but a block of scores fits into memory.) Statistics are fp32. Inside the kernels scores are in
units of log 2, because the hardware's exponential is a power of two.
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
"""Tile of the sum kernels. Two programs fit on one multiprocessor: one computes exponentials while the other
multiplies."""
GRADIENT_TILE = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 16, "num_warps": 8, "num_stages": 3}
"""Tile of the gradient kernel, as large as accumulators allow. Its speed is limited by reading vectors."""
TILE_ROWS_PER_GROUP = 8
"""Rows of tiles that the sum kernel processes together, so that their columns stay in the cache. Smaller
tiles use fewer rows."""


class CandidateLayout(NamedTuple):
    """Partners and excluded columns of a table."""

    shift: int | None = None
    """Column offset of each row's partner, modulo the number of columns. None: rows have no partners."""
    exclude_self: bool = False
    """True if the column of the row itself is not a candidate."""
    hide_partners: bool = False
    """True if partners are not candidates, so that only negatives remain."""
    row_skip: Tensor | None = None
    """Ids of rows. Columns with the same id in `col_skip` are not candidates, except the partner. -1 equals
    nothing."""
    col_skip: Tensor | None = None
    """Ids of columns, for `row_skip`."""


@triton.jit
def _corner(program, n, m, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return the first row and column of a tile.

    Tiles go GROUP rows at a time, column by column.
    """
    down, across = tl.cdiv(n, BM), tl.cdiv(m, BN)
    first = (program // (GROUP * across)) * GROUP
    height = min(down - first, GROUP)
    inside = program % (GROUP * across)
    return (first + inside % height) * BM, (inside // height) * BN


@triton.jit
def _upper_corner(program, n, BM: tl.constexpr, GROUP: tl.constexpr):
    """Return the corner of a tile on or above the diagonal of a square table.

    The triangle becomes a rectangle when its lower half is turned around.
    """
    side = tl.cdiv(n, BM)
    even = 1 - side % 2
    a, b = _corner(program, (side + 1) // 2, side + even, 1, 1, GROUP)
    upper = b >= a + even
    return tl.where(upper, a, side - a - even) * BM, tl.where(upper, b - even, side - 1 - b) * BM


@triton.jit
def _scores(Q, K, row, col, n, m, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """Compute one tile of q·k, accumulated in fp32.

    Loads are masked unless all sizes are multiples of the tile's.
    """
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
    """Return True if a tile may hold the partner of one of its rows.

    Partners beyond the last column continue at the first one.
    """
    first, last = row + shift, row + shift + BM - 1
    straight = (first < col + BN) & (last >= col)
    wrapped = (first - m < col + BN) & (last - m >= col)
    return straight | wrapped


@triton.jit
def _partner_scores(Q, K, POS, SCALE, n, m, offset, shift, D: tl.constexpr, LEARNED: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """Compute the scores of rows with their partners.

    Picking them out of the tiles would make every tile slower.
    """
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
    """Return a scale: a number or, if it is learned, the value of a tensor."""
    if LEARNED:
        return tl.load(X)
    else:
        return X


@triton.jit
def _candidates(
    x, nothing, ROW_SKIP, COL_SKIP, r, place, c, n, m, shift,
    PARTNER: tl.constexpr, SELF: tl.constexpr, HIDE: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    """Return a tile with `nothing` in place of scores that are not candidates.

    `r` are the rows of this call, `place` the same rows in the whole table.
    """
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
    """Add tiles' sums of 2^(s - bound) to their rows and, if asked, to their columns.

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
    """Compute each row's maximum and sum over `span` columns.

    The maximum moves along, so that scores of any size are safe.
    """
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
    """Write a block of dL/ds.

    It is each row's weight times its softmax, each column's if asked, and the weights of the partners.
    """
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
    """Return True if a table of n rows is symmetric.

    The rows are compared with themselves. Partners and excluded columns must be symmetric too.
    """
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
    """Sum e^(s - bound) over the candidates of rows and columns.

    Scores must be at most `bound` and must not differ too much. The arguments `q`, `k`, `scale`, `layout` and
    `offset` have the same meaning in the functions below.

    Args:
        q: Rows of a table, or some of them, shape (n, d).
        k: Columns of the table, shape (m, d).
        scale: Factor of the scores, a number or a tensor with one element.
        bound: Upper bound of the scores.
        layout: Layout of the whole table, except that `row_skip` covers only the rows of `q`.
        offset: Index in the whole table of the first row of `q`.
        both: True if sums of columns are computed too.
        half_table: True if half of the table is enough. Requires that k is q and that `is_mirrored` holds.

    Returns:
        Sums of rows, (n,), or sums of rows followed by sums of columns, (n + m,).
    """
    (n, d), m = q.shape, k.shape[0]
    sums = q.new_zeros(n + m if both else n, dtype=torch.float32)
    # With half a table the last programs may idle.
    programs = max(1, min(_tiles(n, m, SUM_TILE), 2 * _processors(q.device)))
    assert SUM_TILE["BM"] == SUM_TILE["BN"] or not half_table
    _bounded_sums[(programs,)](
        q, k, sums, sums[n:] if both else sums, *_skips(q, layout), scale, n, m, offset, bound, layout.shift or 0,
        d, isinstance(scale, Tensor), both, half_table, *_flags(layout), programs, GROUP=TILE_ROWS_PER_GROUP,
        EVEN=_even(n, m, d, SUM_TILE), **SUM_TILE,
    )  # fmt: skip
    return sums


def online_lse(q: Tensor, k: Tensor, scale: float | Tensor, layout: CandidateLayout, offset: int = 0) -> Tensor:
    """Compute the log-sum-exp of each row, for scores of any size.

    The result has shape (n,).
    """
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
    """Compute the score of each row with its partner, (n,).

    The partner is the column at offset `shift`, modulo m.
    """
    (n, d), m = q.shape, k.shape[0]
    found = q.new_empty(n, dtype=torch.float32)
    _partner_scores[(triton.cdiv(n, 64),)](q, k, found, scale, n, m, offset, shift, d, isinstance(scale, Tensor), BM=64, BK=64)
    return found


def fill_score_gradients(
    q: Tensor, k: Tensor, lse: tuple[Tensor, Tensor | None], weight: tuple[Tensor, Tensor, Tensor],
    scale: float | Tensor, bound: float | None, layout: CandidateLayout, offset: int, turned: bool, out: Tensor,
) -> None:  # fmt: skip
    """Fill `out` with the gradient of the scores.

    Args:
        q: Some rows of the table, shape (n, d).
        k: Columns of the table, shape (m, d).
        lse: Log-sum-exps of these rows and, if columns count too, of all columns.
        weight: Weights of these rows, of all columns, and of the partners of all rows.
        scale: Factor of the scores.
        bound: Upper bound of the scores, or None.
        layout: Partners and excluded columns.
        offset: Index in the whole table of the first row of `q`.
        turned: True if the transpose of the partners' part is added too.
        out: Result, shape (n, m).
    """
    (n, d), m = q.shape, k.shape[0]
    both = lse[1] is not None
    of_cols = (lse[1], weight[1]) if both else (lse[0], weight[0])
    _slopes[(_tiles(n, m, GRADIENT_TILE),)](
        q, k, lse[0], of_cols[0], weight[0], of_cols[1], weight[2], *_skips(q, layout), out, scale, n, m, offset, layout.shift or 0,
        bound or 0.0, d, isinstance(scale, Tensor), both, bound is not None, turned, *_flags(layout),
        EVEN=_even(n, m, d, GRADIENT_TILE), **GRADIENT_TILE,
    )  # fmt: skip


def _flags(layout: CandidateLayout) -> tuple[bool, bool, bool, bool]:
    return layout.shift is not None, layout.exclude_self, layout.hide_partners, layout.row_skip is not None


def _skips(q: Tensor, layout: CandidateLayout) -> tuple[Tensor, Tensor]:
    """Return the skip ids, or unused pointers without skip ids."""
    return (q, q) if layout.row_skip is None or layout.col_skip is None else (layout.row_skip, layout.col_skip)


def _even(n: int, m: int, d: int, tile: dict[str, int]) -> bool:
    return n % tile["BM"] == 0 and m % tile["BN"] == 0 and d % tile["BK"] == 0


def _tiles(n: int, m: int, tile: dict[str, int]) -> int:
    return triton.cdiv(n, tile["BM"]) * triton.cdiv(m, tile["BN"])


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1

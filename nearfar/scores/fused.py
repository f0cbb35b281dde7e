r"""Log-sum-exp of every row of \(Q K^\top\), computed in blocks.

The forward pass also computes parts of the gradient.

    lse(q, k, hidden)      any q (n, d) and k (m, d), without the `hidden` columns of each row
    lse_of_self(x, scale)  rows of x against each other, without the row itself; computes half of the table

InfoNCE and related losses spend most of their time in these two functions. Memory is linear in n + m. Within
`shared_over_ranks` the ranks share the rows of `lse`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.rank_sharing import RankGroup, get_sharing_ranks
from nearfar.scores.rowmap import refuse_second_derivative

SINGLE_THREAD_ENTRIES_PER_BLOCK = 1 << 20
"""Entries of one block of the table with a single thread: 4 MB, which fit into a CPU's cache."""
MULTITHREAD_ENTRIES_PER_BLOCK = 1 << 23
"""Entries of one block if threads share it. Threads wait for each other after every operation, so blocks are
large and few."""
GPU_ENTRIES_PER_BLOCK = 1 << 26
"""Entries of one block on a GPU, enough to keep it busy."""
MAX_SCORE_SPREAD = 80.0
"""Largest spread of scores that share one exponential. exp(-80) is still a normal number in single
precision."""


def lse(q: Float[Tensor, "n d"], k: Float[Tensor, "m d"], hidden: Int[Tensor, "n h"] | None = None) -> Float[Tensor, " n"]:
    r"""Compute \(\log \sum_{j \notin H_i} e^{q_i^\top k_j}\) for each row.

    The value is -inf, without gradient, if a row has no columns left.

    The forward pass also computes \(A_i = \sum_j p_{ij} k_j\) and \(B_j = \sum_i p_{ij} q_i\) if backward
    needs them, where p is the softmax of a row. This takes at most three matrix products and one exponential
    per entry. Nothing is computed twice. The gradient with respect to q is \(g_i A_i\). The gradient with
    respect to k is \(g B\) if all rows have the same weight, as after a mean. Otherwise backward makes one
    more pass with the weights.

    Args:
        q: Queries, shape (n, d).
        k: Keys, shape (m, d).
        hidden: Columns \(H_i\) to leave out of each row, shape (n, h).
    """
    return _Lse.apply(q, k, hidden)


def lse_of_self(x: Float[Tensor, "n d"], scale: float) -> Float[Tensor, " n"]:
    r"""Compute \(\log \sum_{j \neq i} e^{\text{scale}\, x_i^\top x_j}\) for rows of norm at most 1.

    The table is symmetric. Each block above the diagonal gives rows and columns at once, so two matrix
    products do the work of three. Rows and columns share one exponential, relative to the largest possible
    score. This is safe if scores differ by less than `MAX_SCORE_SPREAD`.
    """
    return _LseOfSelf.apply(x, scale)


def can_share_exponentials(scale: object, lowest: float, dtype: torch.dtype) -> bool:
    """Return True if `lse_of_self` can be used.

    The rows must not be shared over ranks. The scale must be a positive number, and scores must not differ
    too much. `lowest` is the smallest score before scaling.
    """
    if not isinstance(scale, (int, float)) or not (scale > 0 and lowest > -math.inf):
        return False
    limit = MAX_SCORE_SPREAD if dtype == torch.float32 else 8 * MAX_SCORE_SPREAD
    return get_sharing_ranks().world_size == 1 and -2 * lowest * scale < limit


def _rows_of_block(k: Tensor) -> int:
    if k.is_cuda:
        tile = GPU_ENTRIES_PER_BLOCK
    elif torch.get_num_threads() == 1:
        tile = SINGLE_THREAD_ENTRIES_PER_BLOCK
    else:
        tile = MULTITHREAD_ENTRIES_PER_BLOCK
    return max(1, tile // max(1, len(k)))


class _Lse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, hidden: Tensor | None):
        n, size, ranks = len(q), _rows_of_block(k), get_sharing_ranks()
        a, b = (torch.zeros_like(x) if wanted else None for x, wanted in zip((q, k), ctx.needs_input_grad[:2], strict=True))
        buffer = q.new_empty(min(size, n), len(k))
        found = []
        for at in ranks.split_own_rows(n, size):
            e = buffer[: at.stop - at.start]
            top, total = _exponentials(q[at], k, None if hidden is None else hidden[at], e)
            found.append((top + total.log())[:, 0])
            # The softmax is e / total. Dividing the vectors instead saves a pass over the table.
            total.masked_fill_(total == 0, 1.0)  # no columns left: gradient 0 for any vectors
            if a is not None:
                torch.mm(e, k, out=a[at]).div_(total)
            if b is not None:
                b.addmm_(e.T, q[at] / total)
        value = ranks.gather(torch.cat(found), n)
        ctx.ranks = ranks
        ctx.save_for_backward(q, k, hidden, value, a, b)
        return value

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        refuse_second_derivative("lse")
        q, k, hidden, value, a, b = ctx.saved_tensors
        grad = grad.masked_fill(value == -math.inf, 0.0)
        dq = a * grad[:, None] if ctx.needs_input_grad[0] else None
        dk = None
        if ctx.needs_input_grad[1]:
            even = len(grad) == 0 or bool((grad == grad[0]).all())
            dk = b * grad[:1] if even and len(grad) else _weighted(q, k, hidden, value, grad, ctx.ranks)
        ctx.ranks.sum([g for g in (dq, dk) if g is not None])
        return dq, dk, None


def _exponentials(q: Tensor, k: Tensor, hidden: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor]:
    """Compute exp(score - largest) of a block in `out`.

    Returns:
        Largest score of each row and sum of each row of `out`, both (n, 1).
    """
    torch.mm(q, k.T, out=out)
    if out.shape[1] == 0:
        return q.new_zeros(len(q), 1), q.new_zeros(len(q), 1)
    if hidden is not None:
        out.scatter_(1, hidden, -math.inf)
    top = out.amax(1, keepdim=True)
    top.masked_fill_(top == -math.inf, 0.0)
    return top, out.sub_(top).exp_().sum(1, keepdim=True)


def _weighted(q: Tensor, k: Tensor, hidden: Tensor | None, value: Tensor, grad: Tensor, ranks: RankGroup) -> Tensor:
    """Compute dL/dk for rows of different weights.

    The softmax is computed again and each row is multiplied by its weight.
    """
    dk = torch.zeros_like(k)
    value = value.masked_fill(value == -math.inf, 0.0)
    for at in ranks.split_own_rows(len(q), _rows_of_block(k)):
        p = torch.mm(q[at], k.T)
        if hidden is not None:
            p.scatter_(1, hidden[at], -math.inf)
        p.sub_(value[at][:, None]).exp_().mul_(grad[at][:, None])
        dk.addmm_(p.T, q[at])
    return dk


class _LseOfSelf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, scale: float):
        total = x.new_zeros(len(x))
        for i, e, block in _upper_blocks(x, scale):
            total[i:e] += block.sum(1)
            total[e:] += block[:, e - i :].sum(0)
        value = total.log_().add_(scale)
        ctx.save_for_backward(x, value)
        ctx.scale = scale
        return value

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        refuse_second_derivative("lse_of_self")
        x, value = ctx.saved_tensors
        weight = torch.where(value == -math.inf, 0.0, grad * (ctx.scale - value).exp())
        dx = torch.zeros_like(x)
        for i, e, block in _upper_blocks(x, ctx.scale):
            block.mul_(weight[i:e, None] + weight[None, i:])
            dx[i:e].addmm_(block, x[i:])
            if e < len(x):
                dx[e:].addmm_(block[:, e - i :].T, x[i:e])
        return dx.mul_(ctx.scale), None


def _upper_blocks(x: Tensor, scale: float):
    """Yield blocks of the upper triangle of exp(scale (x xᵀ - 1)).

    Each result is (i, e, block), where the block holds rows i to e, from column i on. The diagonal of the
    table is 0.
    """
    size = min(_rows_of_block(x), max(128, len(x) // 8))  # thin blocks have fewer entries below the diagonal
    for i in range(0, len(x), size):
        e = min(i + size, len(x))
        block = torch.addmm(x.new_full((1, 1), -scale), x[i:e], x[i:].T, alpha=scale).exp_()
        block[:, : e - i].fill_diagonal_(0.0)
        yield i, e, block

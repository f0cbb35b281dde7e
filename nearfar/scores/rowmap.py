"""Blockwise map over rows, which computes all row statistics.

It keeps no autograd graph and is exact over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nearfar.core.errors import NearfarError, UsageError
from nearfar.core.rank_sharing import check_same_on_ranks, disable_rank_sharing, get_sharing_ranks

RowFunction = Callable[..., Tensor | tuple[Tensor, ...]]


def rowmap(
    fn: RowFunction, rows: Sequence[Tensor], shared: Sequence[Tensor] = (), rows_per_block: int = 1024
) -> Tensor | tuple[Tensor, ...]:
    r"""Compute \(y_i = f(x_i;\, \theta)\) for every row \(i\) in blocks.

    The function may use all shared tensors \(\theta\). No graph is kept: backward calls `fn` again, block by
    block. Memory holds the intermediate results of a single block, for any number of rows.

    Within `shared_over_ranks` every rank calls `rowmap` with the same tensors, computes its share of the rows
    and receives all results. Backward sums the gradients of rows and shared tensors over the ranks. Every
    rank therefore gets the whole gradient, as in a single process. Outside of `shared_over_ranks` ranks do
    not communicate.

    Shapes: Each tensor of `rows` is `(n, …)`, `shared` has any shapes, and results are `(n, …)`. Integer
    tensors are allowed in both. Integer results have no gradient.

    Requirements: `fn` treats rows independently and gives the same values when it is called again. Every
    tensor that needs a gradient must be an argument. A tensor that `fn` captures from outside would lose its
    gradient, which is an error in backward. The result is differentiable once. Backward with
    `create_graph=True` is an error.

    Args:
        fn: Function `fn(*row_blocks, *shared)` that returns one row for each row of its block, as a tensor or
            a tuple of tensors.
        rows: Tensors with n rows each.
        shared: Tensors that `fn` gets whole.
        rows_per_block: Number of rows in a block.

    Raises:
        UsageError: If lengths differ, `rows_per_block` is below 1, or `fn` returns a wrong number of rows.
    """
    if not rows or any(len(t) != len(rows[0]) for t in rows):
        raise UsageError(f"rowmap: rows must be tensors of one length, got lengths {[len(t) for t in rows]}")
    if rows_per_block < 1:
        raise UsageError(f"rowmap: rows_per_block must be at least 1, got {rows_per_block}")
    check_same_on_ranks("rowmap", (*rows, *shared))
    return _RowMap.apply(fn, len(rows), rows_per_block, *rows, *shared)


class _RowMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn: RowFunction, row_count: int, block: int, first: Tensor, *others: Tensor):
        tensors = (first, *others)
        ctx.save_for_backward(*tensors)
        ctx.fn, ctx.row_count, ctx.block, ctx.ranks = fn, row_count, block, get_sharing_ranks()
        spans = ctx.ranks.split_own_rows(len(first), block)
        with disable_rank_sharing():
            blocks = [_as_tuple(fn(*(t[at] for t in tensors[:row_count]), *tensors[row_count:]), at) for at in spans]
        results = [ctx.ranks.gather(torch.cat(parts), len(first)) for parts in zip(*blocks, strict=True)]
        ctx.mark_non_differentiable(*(r for r in results if not r.is_floating_point()))
        return tuple(results) if len(results) > 1 else results[0]

    @staticmethod
    def backward(ctx, *result_grads: Tensor):
        refuse_second_derivative("rowmap")
        tensors, row_count = list[Tensor](ctx.saved_tensors), ctx.row_count
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        grads = {k: torch.zeros_like(tensors[k]) for k in wanted}
        for number, at in enumerate(ctx.ranks.split_own_rows(len(tensors[0]), ctx.block)):
            inputs = [(t[at] if k < row_count else t).detach().requires_grad_(k in grads) for k, t in enumerate(tensors)]
            with torch.enable_grad(), disable_rank_sharing():
                results = _as_tuple(ctx.fn(*inputs), at)
            live = [(y, g[at]) for y, g in zip(results, result_grads, strict=True) if y.requires_grad]
            if not live:
                continue
            if number == 0:
                _refuse_captured([y for y, _ in live], inputs)
            values, slopes = zip(*live, strict=True)
            found = torch.autograd.grad(values, [inputs[k] for k in wanted], slopes, allow_unused=True)
            for k, grad in zip(wanted, found, strict=True):
                if grad is not None:
                    (grads[k][at] if k < row_count else grads[k]).add_(grad)
        ctx.ranks.sum(list(grads.values()))
        return (None, None, None, *(grads.get(k) for k in range(len(tensors))))


def refuse_second_derivative(operation: str) -> None:
    """Raise `NearfarError` if backward runs with `create_graph=True`.

    Call this function in backward. A graph of the gradient would silently lack this operation.
    """
    if torch.is_grad_enabled():
        raise NearfarError(f"{operation} can be differentiated only once: backward was called with create_graph=True")


def _as_tuple(results: Tensor | tuple[Tensor, ...], at: slice) -> tuple[Tensor, ...]:
    results = results if isinstance(results, tuple) else (results,)
    for r in results:
        if r.dim() == 0 or len(r) != at.stop - at.start:
            raise UsageError(f"rowmap: fn must return one row for each of its {at.stop - at.start} rows, got shape {tuple(r.shape)}")
    return results


def _refuse_captured(results: list[Tensor], inputs: list[Tensor]) -> None:
    """Raise `UsageError` if results depend on a leaf that is not among the inputs.

    The gradient of such a leaf would silently be lost.
    """
    known = {id(t) for t in inputs}
    waiting = [y.grad_fn for y in results]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            raise UsageError(
                f"rowmap: the function closes over a tensor of shape {tuple(leaf.shape)} that requires a gradient; "
                "pass it as one of the shared tensors (for a score: as one of its parameters)"
            )
        following = {n for n, _ in getattr(node, "next_functions", ()) if n is not None} - seen
        seen |= following
        waiting.extend(following)

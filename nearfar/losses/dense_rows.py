"""Losses that need every score of a row, not only its statistics: blocks of rows as dense tables, never the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.scores import Scores


def map_dense_rows(
    S: Scores, fn: Callable[..., tuple[Tensor, ...]], rows: Sequence[Tensor] = (), shared: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    r"""`fn(scores, pos, neg, *rows, *shared)` on blocks of the table's rows, its results one under another.

    `scores` is a block of `S.table()`, `pos` and `neg` say who is positive and who negative in it: all three
    `(b, columns)`. `rows` are cut into the same blocks, `shared` come whole. `fn` returns a tuple of tensors with
    one row for each row of the block.

    Requirements and costs: those of `rowmap`, through which it goes. Memory holds a few tables of one block, the
    gradient is recomputed block by block, and ranks share the blocks.
    """
    return S.map_blocks(lambda block, *more: fn(block.to_dense(), block.positive_mask, block.negative_mask, *more), rows, shared)


def check_distances(S: Scores, loss_name: str) -> None:
    """An error where scores cannot be minus distances: dot products and cosines, unless they were shifted below zero."""
    shifted = isinstance(S.bias, Tensor) or S.bias < 0
    if S.score.linear and len(S.key) and not shifted:
        raise UsageError(f"{loss_name} needs a table of minus distances: build it with score=euclidean or score=squared_euclidean")

"""Dense blocks of rows, for losses that need every score of a row.

Statistics of the row are not enough for these losses. The whole dense table is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.scores import Scores


def map_dense_rows(
    S: Scores, fn: Callable[..., tuple[Tensor, ...]], rows: Sequence[Tensor] = (), shared: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """Apply a function to dense blocks of the table's rows.

    Calls `fn(scores, pos, neg, *rows, *shared)` for each block and concatenates the results. `scores` is a
    block of `S.to_dense()`. `pos` and `neg` are masks of its positives and negatives. All three have shape
    `(b, columns)`.

    Args:
        S: Table of scores.
        fn: Function that returns a tuple of tensors, each with one row for each row of the block.
        rows: Tensors with one row for each row of the table. They are split into the same blocks.
        shared: Tensors passed whole to every call.

    Requirements and costs: as `rowmap`, which does the work. Memory holds a few tables of one block. Backward
    recomputes block by block. Ranks share the blocks.
    """
    return S.map_blocks(lambda block, *more: fn(block.to_dense(), block.positive_mask, block.negative_mask, *more), rows, shared)


def check_distances(S: Scores, loss_name: str) -> None:
    """Raise `UsageError` if the scores cannot be minus distances.

    Dot products and cosines are rejected, unless the table shifts them below zero.
    """
    shifted = isinstance(S.bias, Tensor) or S.bias < 0
    if S.score.linear and len(S.key) and not shifted:
        raise UsageError(f"{loss_name} needs a table of negative distances: build it with score=euclidean or score=squared_euclidean")

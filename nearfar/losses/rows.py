"""Losses that need every score of a row, not only its statistics: blocks of rows as dense tables, never the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.scores import Scores, rowmap
from nearfar.scores.table import _OF_COLUMNS, _OF_ROWS, TILE


def by_rows(
    S: Scores, fn: Callable[..., tuple[Tensor, ...]], rows: Sequence[Tensor] = (), shared: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    r"""`fn(scores, pos, neg, *rows, *shared)` on blocks of the table's rows, its results one under another.

    `scores` is a block of `S.table()`, `pos` and `neg` say who is positive and who negative in it: all three
    `(b, columns)`. `rows` are cut into the same blocks, `shared` come whole. `fn` returns a tuple of tensors with
    one row for each row of the block.

    Requirements and costs: those of `rowmap`, through which it goes. Memory holds a few tables of one block, the
    gradient is recomputed block by block, and ranks share the blocks.
    """
    of_rows = {name: t for name in _OF_ROWS if isinstance(t := getattr(S, name), Tensor)}
    of_columns = {name: t for name in _OF_COLUMNS if isinstance(t := getattr(S, name), Tensor)}
    row_count, column_count, parameter_count = len(of_rows), len(of_columns), len(S.score.parameters)

    def of_block(*tensors: Tensor) -> tuple[Tensor, ...]:
        here, tensors = tensors[:row_count], tensors[row_count:]
        extra, tensors = tensors[: len(rows)], tensors[len(rows) :]
        columns, parameters = tensors[:column_count], tensors[column_count : column_count + parameter_count]
        part = dict(zip((*of_rows, *of_columns), (*here, *columns), strict=True))
        block = replace(S, **part, score=replace(S.score, parameters=parameters))
        return fn(block.table(), block.pos, block.neg, *extra, *tensors[column_count + parameter_count :])

    size = S.block or max(1, TILE // max(1, len(S.key) * S.score.width))
    found = rowmap(of_block, (*of_rows.values(), *rows), (*of_columns.values(), *S.score.parameters, *shared), size)
    return found if isinstance(found, tuple) else (found,)


def check_distances(S: Scores, loss: str) -> None:
    """An error where scores cannot be minus distances: dot products and cosines, unless they were shifted below zero."""
    shifted = isinstance(S.bias, Tensor) or S.bias < 0
    if S.score.linear and len(S.key) and not shifted:
        raise UsageError(f"{loss} needs a table of minus distances: build it with score=euclidean or score=squared_euclidean")

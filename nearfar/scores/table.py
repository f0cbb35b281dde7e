"""Score table: rows are anchors and columns are candidates.

A table is a description of its scores. Its entries are held in memory only if the table is small.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from nearfar.core.argument_checks import check_positive, read_host_number
from nearfar.core.errors import UsageError
from nearfar.core.rank_sharing import check_same_on_ranks, get_sharing_ranks
from nearfar.scores import statistics
from nearfar.scores.candidate_roles import CandidateRoles, as_ids, match_ids
from nearfar.scores.constructors import ScoreConstructors
from nearfar.scores.half import half_stats
from nearfar.scores.rowmap import rowmap
from nearfar.scores.score import Scalar, Score, dot
from nearfar.scores.shortcuts import compute_shortcut
from nearfar.scores.statistics import Statistic, combine, compute_row_statistics

MAX_DENSE_ENTRIES = 1 << 22
"""Largest table that is computed at once and keeps its autograd graph. Larger tables are computed in blocks
of rows."""
ENTRIES_PER_BLOCK = 1 << 20
"""Entries of one block of a large table."""

_ROW_FIELDS = ("query", "row_id", "row_skip", "private_scores", "private_signs", "diagonal")
_COLUMN_FIELDS = ("key", "col_id", "col_skip", "scale", "bias")


@dataclass(frozen=True, eq=False)
class Scores(ScoreConstructors):
    r"""Score table \(S_{ij} = \text{scale} \cdot \text{score}(q_i, k_j) + \text{bias}\) with candidate roles.

    Build a table with `Scores.from_pairs`, `from_views`, `from_labels`, `from_matched` or `from_lists`.
    Change it with `S / temperature`, `S * scale`, `S + bias`, `S - bias`, `-S` and `S.T`.

    Losses use row statistics. `S.stats(Scores.all_lse, Scores.pos_sum)` makes one pass over the table for all
    statistics. `S.pos_sum` is short for a single statistic. A large table is never held in memory: blocks of
    its rows are computed in forward and again in backward. Within `shared_over_ranks` the ranks share the
    blocks. Statistics are differentiable once, and computed at least in single precision.

    Column j is positive for row i if `row_id[i] == col_id[j]`. Column j is not a candidate if it is the row
    itself (`exclude_self`), or if `row_skip[i] == col_skip[j]` and it is not positive (duplicates, known
    false negatives). All other columns are negative. The id -1 equals nothing.
    """

    query: Float[Tensor, "n ..."]
    """Anchors, prepared for `score.table`."""
    key: Float[Tensor, "m ..."]
    """Shared candidates, prepared for `score.table`."""
    row_id: Int[Tensor, " n"] | None = None
    """Ids of the rows. None, together with `col_id`: no shared column is positive."""
    col_id: Int[Tensor, " m"] | None = None
    """Ids of the columns."""
    exclude_self: bool = False
    """True if the column of the row itself is not a candidate."""
    row_skip: Int[Tensor, " n"] | None = None
    """Skip ids of the rows, for excluded negatives."""
    col_skip: Int[Tensor, " m"] | None = None
    """Skip ids of the columns."""
    scale: Scalar = 1
    """Factor of the scores, 1 / temperature; a tensor if it is learned."""
    bias: Scalar = 0
    """Constant that is added to all scores."""
    score: Score = dot
    """Score of a query with a key."""
    private_scores: Float[Tensor, "n k"] | None = None
    """Scores of the private candidates of each row, before scale and bias, in addition to the shared
    columns."""
    private_signs: Int[Tensor, "n k"] | None = None
    """Signs of the private candidates: +1 positive, -1 negative, 0 neither."""
    diagonal: Int[Tensor, " n"] | None = None
    """Column opposite each row: the row itself in a square table. None: 0, 1, 2, …, which the fastest paths
    need."""
    id_period: int | None = None
    """Period of the ids in tables of pairs and views: ids are positions modulo this number. Optional; saves
    the search for positives."""
    rows_per_block: int | None = None
    """Number of rows in a block. None: chosen by size."""

    pos_count: ClassVar = statistics.POS_COUNT
    pos_sum: ClassVar = statistics.POS_SUM
    pos_lse: ClassVar = statistics.POS_LSE
    pos_softplus: ClassVar = statistics.POS_SOFTPLUS
    neg_count: ClassVar = statistics.NEG_COUNT
    neg_sum: ClassVar = statistics.NEG_SUM
    neg_lse: ClassVar = statistics.NEG_LSE
    neg_softplus: ClassVar = statistics.NEG_SOFTPLUS
    all_count: ClassVar = statistics.ALL_COUNT
    all_lse: ClassVar = statistics.ALL_LSE

    def __post_init__(self):
        if self.diagonal is None:
            for a, b in (("row_id", "col_id"), ("row_skip", "col_skip"), ("private_scores", "private_signs")):
                if (getattr(self, a) is None) != (getattr(self, b) is None):
                    raise UsageError(f"Scores: {a} and {b} must be given together, one of them is missing")

    def __len__(self) -> int:
        return self.query.shape[0]

    def __mul__(self, factor: Scalar) -> Scores:
        return replace(self, scale=self.scale * factor, bias=self.bias * factor)

    __rmul__ = __mul__

    def __truediv__(self, temperature: Scalar) -> Scores:
        check_positive(temperature=temperature)
        return self * (1 / temperature)

    def __add__(self, bias: Scalar) -> Scores:
        return replace(self, bias=self.bias + bias)

    def __sub__(self, bias: Scalar) -> Scores:
        return replace(self, bias=self.bias - bias)

    def __neg__(self) -> Scores:
        """Negate all scores, so that the nearest columns become the farthest.

        This converts distances to scores and scores to distances. The result has no lower bound `lowest`.
        """
        return self * -1

    @property
    def T(self) -> Scores:
        """Return the table with columns as anchors and rows as candidates."""
        if self.private_scores is not None:
            raise UsageError("Scores.T: rows have private candidates, so the table cannot be transposed")
        turned = {"query": self.key, "key": self.query, "row_id": self.col_id, "col_id": self.row_id}
        skips = {"row_skip": self.col_skip, "col_skip": self.row_skip}
        id_period = self.id_period if len(self.key) == len(self) else None
        return replace(self, **turned, **skips, score=self.score.T, diagonal=None, id_period=id_period)

    def exclude_negatives(self, row_ids: Shaped[Tensor, "..."], column_ids: Shaped[Tensor, "..."]) -> Scores:
        """Exclude negatives with equal ids.

        Examples are duplicates and known false negatives.

        Args:
            row_ids: Ids of the rows, shape (n,). The id -1 equals nothing.
            column_ids: Ids of the columns, shape (m,).
        """
        ids = as_ids(row_ids, len(self), "exclude_negatives: row_ids"), as_ids(column_ids, len(self.key), "exclude_negatives: column_ids")
        return replace(self, row_skip=ids[0], col_skip=ids[1])

    @property
    def lowest(self) -> Scalar:
        """Lower bound of all scores, or -inf if none is known.

        A learned scale is assumed to be positive.
        """
        scale = read_host_number(self.scale)
        if scale is not None and scale <= 0:
            return -math.inf if scale else self.bias
        return self.score.lowest * self.scale + self.bias

    def stats(self, *requested: Statistic) -> tuple[Tensor, ...]:
        """Compute row statistics, each of shape `(n,)`.

        Statistics with a shortcut use it. One pass over the table computes all others.
        """
        self.check_same_on_ranks("stats")
        if self._is_half:
            return half_stats(self, requested)[0]
        with _full_precision(self.query.device.type):
            found = {what: value for what in requested if (value := compute_shortcut(self, what)) is not None}
        found = {what: self.add_private_candidates(what, value) for what, value in found.items()}
        rest = tuple(what for what in requested if what not in found)
        if rest:
            values = self._reduce(self._shared_scores(), rest) if self._is_small else self._streamed(rest)
            found |= zip(rest, values, strict=True)
        return tuple(found[what] for what in requested)

    def row_and_column_stats(self, *requested: Statistic) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Compute statistics of rows and of columns.

        They have shape `(n,)` for rows and `(m,)` for columns. A small table is computed only once for both.
        """
        self.check_same_on_ranks("row_and_column_stats")
        if self._is_half:
            return half_stats(self, requested, both=True)
        if self._is_small:
            scores = self._shared_scores()
            return self._reduce(scores, requested), self.T._reduce(scores.T, requested)
        return self.stats(*requested), self.T.stats(*requested)

    def check_same_on_ranks(self, operation: str) -> None:
        """Raise `UsageError` if the ranks have different tables.

        See `shared_over_ranks`.
        """
        if get_sharing_ranks().world_size > 1:
            described = (getattr(self, name) for name in (*_ROW_FIELDS, *_COLUMN_FIELDS))
            numbers = (torch.as_tensor(x, dtype=torch.float64) if isinstance(x, (int, float)) else x for x in described)
            check_same_on_ranks(operation, (*numbers, *self.score.parameters))

    def to_dense(self) -> Float[Tensor, "n columns"]:
        """Return the dense table of all scores.

        Shared columns come first, then the private candidates of each row.
        """
        scores = self._shared_scores()
        return scores if self.private_scores is None else torch.cat([scores, self.private_scores * self.scale + self.bias], 1)

    @property
    def positive_mask(self) -> Bool[Tensor, "n columns"]:
        """Return the mask of positives, in the columns of `to_dense`."""
        return self._dense("pos")

    @property
    def negative_mask(self) -> Bool[Tensor, "n columns"]:
        """Return the mask of negatives, in the columns of `to_dense`."""
        return self._dense("neg")

    @property
    def _is_half(self) -> bool:
        return self.query.dtype in (torch.bfloat16, torch.float16)

    @property
    def _is_small(self) -> bool:
        return self.rows_per_block is None and len(self) * len(self.key) * self.score.values_per_pair <= MAX_DENSE_ENTRIES

    def _shared_scores(self) -> Tensor:
        """Compute scale * score + bias for the shared columns.

        A linear score applies the scale to the query, which is a pass over (n, d) instead of (n, m).
        """
        with _full_precision(self.query.device.type):
            query, key = (x.float() if self._is_half else x for x in (self.query, self.key))
            query = query * self.scale if self.score.linear else query
            scores = self.score.table(query, key, *self.score.parameters)
            scores = scores if self.score.linear else scores * self.scale
            return scores + self.bias if isinstance(self.bias, Tensor) or self.bias else scores

    def add_private_candidates(self, statistic: Statistic, shared: Tensor) -> Tensor:
        """Add private candidates to a statistic of the shared columns."""
        if self.private_scores is None:
            return shared
        return combine(
            statistic, shared, compute_row_statistics((statistic,), self.private_scores * self.scale + self.bias, self._own_relation())[0]
        )

    def _reduce(self, scores: Tensor, asked: tuple[Statistic, ...]) -> tuple[Tensor, ...]:
        shared = compute_row_statistics(asked, scores, self.compute_candidate_roles())
        if self.private_scores is None:
            return shared
        own = compute_row_statistics(asked, self.private_scores * self.scale + self.bias, self._own_relation())
        return tuple(combine(what, a, b) for what, a, b in zip(asked, shared, own, strict=True))

    def _streamed(self, asked: tuple[Statistic, ...]) -> tuple[Tensor, ...]:
        return self.map_blocks(lambda block: block._reduce(block._shared_scores(), asked))

    def map_blocks(
        self, fn: Callable[..., tuple[Tensor, ...]], rows: Sequence[Tensor] = (), shared: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Map a function over blocks of rows and concatenate the results.

        Memory, gradients and ranks are as in `rowmap`, which does the work.

        Args:
            fn: Function `fn(block, *rows, *shared)`. `block` is a `Scores` table of some rows. The result is
                a tuple of tensors with one row for each row of the block.
            rows: Tensors that are cut into the same blocks.
            shared: Tensors that `fn` gets whole.
        """
        of_rows = {name: t for name in _ROW_FIELDS if isinstance(t := getattr(self, name), Tensor)} | {"diagonal": self.resolved_diagonal}
        of_columns = {name: t for name in _COLUMN_FIELDS if isinstance(t := getattr(self, name), Tensor)}
        counts = (len(of_rows), len(rows), len(of_columns), len(self.score.parameters), len(shared))

        def of_block(*tensors: Tensor) -> tuple[Tensor, ...]:
            source = iter(tensors)
            here, extra, columns, parameters, whole = (tuple(itertools.islice(source, n)) for n in counts)
            part = dict(zip((*of_rows, *of_columns), (*here, *columns), strict=True))
            return fn(replace(self, **part, score=replace(self.score, parameters=parameters)), *extra, *whole)

        size = self.rows_per_block or max(1, ENTRIES_PER_BLOCK // max(1, len(self.key) * self.score.values_per_pair))
        found = rowmap(of_block, (*of_rows.values(), *rows), (*of_columns.values(), *self.score.parameters, *shared), size)
        return found if isinstance(found, tuple) else (found,)

    def compute_candidate_roles(self) -> CandidateRoles:
        """Compute the candidate roles of the shared columns."""
        place, columns = self.resolved_diagonal, self.key.shape[0]
        itself = place[:, None] if self.exclude_self else None
        listed = mask = out = None
        if self.row_id is None or self.col_id is None:
            listed = place.new_empty(len(self), 0)
        elif self.id_period == columns and not self.exclude_self:
            listed = place[:, None]
        elif self.id_period is not None:
            turns = torch.arange(0, columns, max(self.id_period, 1), device=place.device)[int(self.exclude_self) :]
            listed = (place[:, None] + turns) % columns
        else:
            mask = match_ids(self.row_id, self.col_id)
            mask = mask if itself is None else mask.scatter_(1, itself, False)
        if self.row_skip is not None and self.col_skip is not None:
            out = match_ids(self.row_skip, self.col_skip)
            out = out if mask is None else out & ~mask
            for known in (listed, itself):
                out = out if known is None else out.scatter_(1, known, False)
        return CandidateRoles(columns, listed, mask, out, itself)

    def _own_relation(self) -> CandidateRoles:
        assert self.private_signs is not None
        return CandidateRoles(self.private_signs.shape[1], positive_mask=self.private_signs > 0, excluded_mask=self.private_signs == 0)

    def _dense(self, side: Literal["pos", "neg"]) -> Tensor:
        shared = self.compute_candidate_roles().to_mask(side, self.query.new_empty(len(self), len(self.key)))
        return shared if self.private_scores is None else torch.cat([shared, self._own_relation().to_mask(side, self.private_scores)], 1)

    @property
    def resolved_diagonal(self) -> Int[Tensor, " n"]:
        """Return `diagonal`, or 0, 1, 2, … if it is None."""
        return torch.arange(len(self), device=self.query.device) if self.diagonal is None else self.diagonal


def _full_precision(device: str) -> contextlib.AbstractContextManager:
    """Disable autocast for the scores.

    Half-precision scores are too coarse at temperature 0.07.
    """
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else contextlib.nullcontext()

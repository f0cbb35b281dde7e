"""Constructors of score tables.

A constructor determines which rows are compared with which columns, and which columns are positive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.core.errors import UsageError
from nearfar.scores.candidate_roles import as_ids
from nearfar.scores.score import Score, as_score, cosine, dot

ScoreLike = Score | Callable[..., Tensor]
"""Score, or a function of two tensors that `as_score` converts to a score."""


Table = TypeVar("Table", bound="ScoreConstructors")


class ScoreConstructors:
    """Class methods that build a score table.

    The default score is the cosine, and vectors are normalized once. `from_lists` takes computed scores.
    """

    def __init__(self, *args: Any, **fields: Any): ...

    @classmethod
    def from_pairs(cls: type[Table], a: Float[Tensor, "n ..."], b: Float[Tensor, "m ..."], score: ScoreLike = cosine) -> Table:
        """Compare each row of `a` with all rows of `b`.

        Row i of `b` is the positive of row i of `a`. Rows of `b` beyond the n-th are negatives of every row,
        such as mined negatives. Used by CLIP, SimCSE, CPC, N-pair and DPR.

        Args:
            a: Anchors, shape (n, …).
            b: Candidates, shape (m, …) with m >= n.
            score: Score of a row of `a` with a row of `b`.
        """
        check_rows(a=a)
        check_rows(b=b)
        if len(b) < len(a):
            raise UsageError(f"Scores.from_pairs: every row of a needs its partner in b, got {len(a)} and {len(b)} rows")
        score = as_score(score)
        ids = torch.arange(len(b), device=b.device)
        return cls(score.prepare_vectors(a), score.prepare_vectors(b), ids[: len(a)], ids, score=score, id_period=len(b))

    @classmethod
    def from_views(cls: type[Table], first: Float[Tensor, "n ..."], *others: Float[Tensor, "_ ..."], score: ScoreLike = cosine) -> Table:
        """Compare all views of all samples with each other.

        The v views of n samples become v n rows, view after view. Positives of a row are the other views of
        the same sample. Negatives are all views of other samples. A view is not compared with itself. A
        single view has negatives only. Used by SimCLR.
        """
        z, n = (first, *others), len(first)
        for view in z:
            check_rows(view=view)
        if any(len(x) != n for x in others):
            raise UsageError(f"Scores.from_views: every view must have one row for each sample, got {[len(x) for x in z]} rows")
        score = as_score(score)
        rows = score.prepare_vectors(torch.cat(z) if others else first)
        ids = torch.arange(n, device=rows.device).repeat(len(z))
        return cls(rows, rows, ids, ids, exclude_self=True, score=score, id_period=n)

    @classmethod
    def from_labels(cls: type[Table], z: Float[Tensor, "n ..."], labels: Shaped[Tensor, "..."], score: ScoreLike = cosine) -> Table:
        """Compare all rows with each other, with positives by label.

        Rows with the same label are positives of each other. The label -1 (unknown) matches no row. Used by
        SupCon.

        Args:
            z: Rows, shape (n, …).
            labels: Integer labels, shape (n,).
            score: Score of two rows.
        """
        check_rows(z=z)
        score = as_score(score)
        rows, ids = score.prepare_vectors(z), as_ids(labels, len(z), "Scores.from_labels: labels")
        return cls(rows, rows, ids, ids, exclude_self=True, score=score)

    @classmethod
    def from_matched(
        cls: type[Table], q: Float[Tensor, "n ..."], k: Float[Tensor, "n ..."], negatives: Float[Tensor, "m ..."], score: ScoreLike = cosine
    ) -> Table:
        """Compare each query with its key and with shared negatives.

        The key is the only positive. Used by MoCo's queue and NPID's bank.

        Args:
            q: Queries, shape (n, …).
            k: Keys, shape (n, …). Row i belongs to query i.
            negatives: Shared negatives, shape (m, …).
            score: Score of a query with a key or a negative.
        """
        check_rows(q=q, k=k)
        score = as_score(score)
        query = score.prepare_vectors(q)
        positive = score.score_pairs(query, score.prepare_vectors(k))[:, None]
        signs = torch.ones_like(positive, dtype=torch.int8)
        return cls(query, score.prepare_vectors(negatives), score=score, private_scores=positive, private_signs=signs)

    @classmethod
    def from_lists(cls: type[Table], positives: Float[Tensor, "n p"], negatives: Float[Tensor, "n k"]) -> Table:
        """Build a table from computed scores of private candidates.

        Each row has p private positives and k private negatives. Used by NEG, DGI and TransE.

        Args:
            positives: Scores of the positives, shape (n, p).
            negatives: Scores of the negatives, shape (n, k).
        """
        check_rows(positives=positives, negatives=negatives)
        scores = dot.prepare_vectors(torch.cat([positives, negatives], 1))
        signs = torch.ones_like(scores, dtype=torch.int8)
        signs[:, positives.shape[1] :] = -1
        nothing = scores.new_empty(len(scores), 0)
        return cls(nothing, nothing[:0], private_scores=scores, private_signs=signs)

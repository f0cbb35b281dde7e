"""A table with other candidates: negatives that were chosen or made, positives that were chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.scores import Scores, rowmap
from nearfar.scores.table import ENTRIES_PER_BLOCK


def select_negatives(S: Scores, columns: Int[Tensor, "n k"]) -> Scores:
    """The table in which row i has the negatives `columns[i]` instead of all; positives and private candidates stay.

    `columns` are numbers of shared columns, as `hardest_negatives` and its like return them; -1 stands for nobody.
    """
    nowhere = columns.new_zeros(len(S))
    kept = replace(S, row_skip=nowhere, col_skip=columns.new_zeros(len(S.key)))  # equal everywhere: whoever is not positive is out
    if S.row_id is None:  # no shared positives either: one column, skipped, is enough
        kept = replace(kept, key=S.key[:1], col_skip=nowhere.new_zeros(len(S.key[:1])))
    return _append_own_scores(kept, _score_columns(S, columns), torch.where(columns < 0, 0, -1))


def select_positives(S: Scores, columns: Int[Tensor, "n k"]) -> Scores:
    """The table in which row i has the positives `columns[i]`; its other positives are no candidates, its negatives stay.

    The target neighbours of `lmnn`; with `nearest_positives(S, 1)`, easy positive mining.
    """
    if S.row_skip is not None:
        raise UsageError("select_positives: the table already skips candidates, and a table skips by one set of ids only")
    kept = replace(S, row_id=None, col_id=None, row_skip=S.row_id, col_skip=S.col_id, id_period=None)
    return _append_own_scores(kept, _score_columns(S, columns), torch.where(columns < 0, 0, 1))


def add_negatives(S: Scores, candidates: Float[Tensor, "n k ..."]) -> Scores:
    """The table with k more negatives for each row, which are nobody else's: mixed ones (`mix_negatives`), mined passages.

    A candidate of zeros is nobody: a way to give rows different numbers of them.
    """
    n, k = candidates.shape[:2]
    ready = S.score.prepare_vectors(candidates.flatten(0, 1)).unflatten(0, (n, k))
    scores = _score_rows(S, lambda block: block.flatten(0, 1), ready, ())
    return _append_own_scores(S, scores, -candidates.flatten(2).any(2).long())


def _append_own_scores(S: Scores, scores: Tensor, sign: Tensor) -> Scores:
    sign = sign.to(torch.int8)
    if S.private_scores is not None and S.private_signs is not None:
        scores, sign = torch.cat([S.private_scores, scores], 1), torch.cat([S.private_signs, sign], 1)
    return replace(S, private_scores=scores, private_signs=sign)


def _score_columns(S: Scores, columns: Tensor) -> Tensor:
    return _score_rows(S, lambda block, key: key[block.clamp_min(0).reshape(-1)], columns, (S.key,))


def _score_rows(S: Scores, vectors_of: Callable[..., Tensor], listed: Tensor, shared: tuple[Tensor, ...]) -> Tensor:
    """Scores, before scale and bias, of each row with its k listed candidates: in blocks, for the vectors are n k d numbers."""
    k = listed.shape[1]

    def of_block(query: Tensor, listed: Tensor, *others: Tensor) -> Tensor:
        score = replace(S.score, parameters=others[len(shared) :])
        return score.score_pairs(query.repeat_interleave(k, 0), vectors_of(listed, *others[: len(shared)])).view(len(query), k)

    size = max(1, ENTRIES_PER_BLOCK // max(1, k * S.query[:1].numel() * S.score.values_per_pair))
    scores = rowmap(of_block, (S.query, listed), (*shared, *S.score.parameters), size)
    assert isinstance(scores, Tensor)
    return scores

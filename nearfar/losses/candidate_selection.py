"""Score tables with selected or added candidates."""

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
    """Replace the shared negatives of each row with selected columns.

    Row i keeps only the negatives `columns[i]`. Positives and private candidates stay.

    Args:
        S: Table of scores.
        columns: Indices of shared columns, as `mine_hardest_negatives` and the other mining functions return
            them. -1 stands for no candidate.
    """
    nowhere = columns.new_zeros(len(S))
    # The skip ids are equal everywhere, so every candidate that is not positive is skipped.
    kept = replace(S, row_skip=nowhere, col_skip=columns.new_zeros(len(S.key)))
    if S.row_id is None:  # no shared positives either: one skipped column is enough
        kept = replace(kept, key=S.key[:1], col_skip=nowhere.new_zeros(len(S.key[:1])))
    return _append_own_scores(kept, _score_columns(S, columns), torch.where(columns < 0, 0, -1))


def select_positives(S: Scores, columns: Int[Tensor, "n k"]) -> Scores:
    """Replace the positives of each row with selected columns.

    Row i keeps only the positives `columns[i]`. Its other positives are skipped. Its negatives stay. Use it
    for the target neighbors of `lmnn`, or with `mine_nearest_positives(S, 1)` for easy positive mining.

    Args:
        S: Table of scores that skips no candidates yet.
        columns: Indices of shared columns. -1 stands for no candidate.

    Raises:
        UsageError: The table already skips candidates.
    """
    if S.row_skip is not None:
        raise UsageError("select_positives: the table already skips candidates, and a table supports only one set of skip ids")
    kept = replace(S, row_id=None, col_id=None, row_skip=S.row_id, col_skip=S.col_id, id_period=None)
    return _append_own_scores(kept, _score_columns(S, columns), torch.where(columns < 0, 0, 1))


def add_negatives(S: Scores, candidates: Float[Tensor, "n k ..."]) -> Scores:
    """Add k private negatives to each row.

    The negatives of a row are negatives of this row only. Examples are mixed negatives (`mix_negatives`) and
    mined passages. A candidate of zeros is ignored, so rows can have different numbers of negatives.
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
    """Compute the scores of each row with its k listed candidates.

    The scores are before scale and bias. The computation runs in blocks, because the candidates' vectors hold
    n k d numbers.
    """
    k = listed.shape[1]

    def of_block(query: Tensor, listed: Tensor, *others: Tensor) -> Tensor:
        score = replace(S.score, parameters=others[len(shared) :])
        return score.score_pairs(query.repeat_interleave(k, 0), vectors_of(listed, *others[: len(shared)])).view(len(query), k)

    size = max(1, ENTRIES_PER_BLOCK // max(1, k * S.query[:1].numel() * S.score.values_per_pair))
    scores = rowmap(of_block, (S.query, listed), (*shared, *S.score.parameters), size)
    assert isinstance(scores, Tensor)
    return scores

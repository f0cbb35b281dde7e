"""The usual tables: which rows are compared with which columns, and who is alike.

All score by cosine unless told otherwise; vectors are normalised here, once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.core.errors import UsageError
from nearfar.scores.relation import as_ids
from nearfar.scores.score import Score, as_score, cosine, dot
from nearfar.scores.table import Scores

AnyScore = Score | Callable[..., Tensor]


def pairs(a: Float[Tensor, "n ..."], b: Float[Tensor, "m ..."], score: AnyScore = cosine) -> Scores:
    """a_i against all b_j; b_i is its positive. Rows of b beyond the n-th are negatives of everybody (mined ones, say).

    CLIP, SimCSE, CPC, N-pair, DPR.
    """
    check_rows(a=a)
    check_rows(b=b)
    if len(b) < len(a):
        raise UsageError(f"pairs: every row of a needs its partner in b, got {len(a)} and {len(b)} rows")
    score = as_score(score)
    ids = torch.arange(len(b), device=b.device)
    return Scores(score.ready(a), score.ready(b), ids[: len(a)], ids, score=score, period=len(b))


def views(first: Float[Tensor, "n ..."], *others: Float[Tensor, "_ ..."], score: AnyScore = cosine) -> Scores:
    """All views of all instances against each other: rows are the views one after another, `(v n)` of them.

    Positives are the other views of the same instance, negatives all views of other instances; a view is no
    candidate of itself. With a single view there are only negatives. SimCLR.
    """
    z, n = (first, *others), len(first)
    for view in z:
        check_rows(view=view)
    if any(len(x) != n for x in others):
        raise UsageError(f"views: every view must have a row for each instance, got {[len(x) for x in z]} rows")
    score = as_score(score)
    rows = score.ready(torch.cat(z) if others else first)
    ids = torch.arange(n, device=rows.device).repeat(len(z))
    return Scores(rows, rows, ids, ids, exclude_self=True, score=score, period=n)


def labelled(z: Float[Tensor, "n ..."], y: Shaped[Tensor, "..."], score: AnyScore = cosine) -> Scores:
    """Rows against each other; positives share the label, a whole number; -1 (unknown) is shared by nobody. SupCon."""
    check_rows(z=z)
    score = as_score(score)
    rows, ids = score.ready(z), as_ids(y, len(z), "labelled: y")
    return Scores(rows, rows, ids, ids, exclude_self=True, score=score)


def matched(q: Float[Tensor, "n ..."], k: Float[Tensor, "n ..."], against: Float[Tensor, "m ..."], score: AnyScore = cosine) -> Scores:
    """k_i is q_i's only positive and nobody else's candidate; the negatives are the rows of `against`. MoCo's queue, NPID's bank."""
    check_rows(q=q, k=k)
    score = as_score(score)
    query = score.ready(q)
    positive = score.of_pairs(query, score.ready(k))[:, None]
    return Scores(query, score.ready(against), score=score, own=positive, own_sign=torch.ones_like(positive, dtype=torch.int8))


def listed(pos: Float[Tensor, "n p"], neg: Float[Tensor, "n k"]) -> Scores:
    """Scores that are already computed: p positives and k negatives of each row's own. NEG, DGI, translations of entities."""
    check_rows(pos=pos, neg=neg)
    own = dot.ready(torch.cat([pos, neg], 1))
    sign = torch.ones_like(own, dtype=torch.int8)
    sign[:, pos.shape[1] :] = -1
    nothing = own.new_empty(len(own), 0)
    return Scores(nothing, nothing[:0], own=own, own_sign=sign)

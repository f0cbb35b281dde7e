"""Batches made on purpose: random positive pairs and the hard negatives around them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.core.errors import UsageError
from nearfar.core.random_key import Key
from nearfar.losses.mining import hardest_negatives
from nearfar.scores import Scores, as_score, euclidean
from nearfar.scores.build import AnyScore
from nearfar.scores.relation import as_ids


def positive_pairs(y: Int[Tensor, " n"], key: Key, slots: Int[Tensor, " k"]) -> Int[Tensor, "k 2"]:
    """For each slot a random row and another random row of its label. Rows alone in their class, or with label -1, are never drawn."""
    y = as_ids(y, len(y), "positive_pairs: y")
    order = torch.argsort(y, stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(y), device=y.device))
    rising = y[order]
    start, stop = torch.searchsorted(rising, y), torch.searchsorted(rising, y, right=True)
    eligible = ((stop - start > 1) & (y != -1)).nonzero()[:, 0]
    if not len(eligible):
        raise UsageError("positive_pairs: no label occurs twice, so there is no positive pair to draw")
    anchor = eligible[key("anchor").integers(slots, len(eligible))]
    size = (stop - start)[anchor]
    step = 1 + (key("partner").uniform(slots, 1)[:, 0].double() * (size - 1)).long()
    partner = order[start[anchor] + (place[anchor] - start[anchor] + step) % size]
    return torch.stack([anchor, partner], 1)


def hard_batch(
    z: Float[Tensor, "n ..."], y: Int[Tensor, " n"], pairs: Int[Tensor, "p 2"], size: int, score: AnyScore = euclidean
) -> Int[Tensor, " _"]:
    """A batch around a few positive pairs: first they, then their hardest negatives in z, up to `size` rows, none twice.

    All pairs' first-hardest come before anybody's second-hardest. Fewer rows are returned where there are no more negatives.

    Requirements: z are embeddings of all samples, from a bank or from the last refresh; `positive_pairs` draws the pairs.

    Reference: Song, Xiang, Jegelka, Savarese, Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016, section 4.
    """
    check_rows(z=z)
    score, y = as_score(score), as_ids(y, len(z), "hard_batch: y")
    seeds = pairs.flatten()
    if size < len(seeds):
        raise UsageError(f"hard_batch: {len(pairs)} pairs are {len(seeds)} rows already, more than the {size} asked for")
    vectors = score.ready(z)
    S = Scores(vectors[seeds], vectors, y[seeds], y, exclude_self=True, place=seeds, score=score)
    hard = hardest_negatives(S, max(1, size - len(seeds)))
    rows = dict.fromkeys([*seeds.tolist(), *hard.T.flatten().tolist()])
    rows.pop(-1, None)
    return torch.tensor(list(rows)[:size], device=y.device)

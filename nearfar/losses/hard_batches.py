"""Batches built from random positive pairs and the hard negatives around them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.losses.mining import mine_hardest_negatives
from nearfar.scores import Scores, as_score, euclidean
from nearfar.scores.candidate_roles import as_ids
from nearfar.scores.constructors import ScoreLike


def draw_positive_pairs(labels: Int[Tensor, " n"], rng_key: RandomKey, slots: Int[Tensor, " k"]) -> Int[Tensor, "k 2"]:
    """Draw a random pair of rows with the same label for each slot.

    The first row of a pair is drawn among all rows, the second among the other rows of its label. Rows that
    are alone in their class, or have label -1, are never drawn.

    Returns:
        Indices `(k, 2)` of the drawn pairs.
    """
    labels = as_ids(labels, len(labels), "draw_positive_pairs: labels")
    order = torch.argsort(labels, stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(labels), device=labels.device))
    rising = labels[order]
    start, stop = torch.searchsorted(rising, labels), torch.searchsorted(rising, labels, right=True)
    eligible = ((stop - start > 1) & (labels != -1)).nonzero()[:, 0]
    if not len(eligible):
        raise UsageError("draw_positive_pairs: no label occurs twice, so there is no positive pair to draw")
    anchor = eligible[rng_key("anchor").integers(slots, len(eligible))]
    size = (stop - start)[anchor]
    step = 1 + (rng_key("partner").uniform(slots, 1)[:, 0].double() * (size - 1)).long()
    partner = order[start[anchor] + (place[anchor] - start[anchor] + step) % size]
    return torch.stack([anchor, partner], 1)


def build_hard_batch(
    z: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], pairs: Int[Tensor, "p 2"], batch_size: int, score: ScoreLike = euclidean
) -> Int[Tensor, " _"]:
    """Build a batch from positive pairs and their hardest negatives.

    The pairs come first, then their hardest negatives in `z`, up to `batch_size` rows without repeats. The
    hardest negatives of all rows come before the second-hardest ones.

    Args:
        z: Embeddings of all samples, from a memory bank or from the last refresh.
        labels: Labels of all samples.
        pairs: Indices of positive pairs, as `draw_positive_pairs` draws them.
        batch_size: Number of rows of the batch.
        score: Score that ranks the negatives.

    Returns:
        Indices of the rows, fewer than `batch_size` if there are no more negatives.

    Reference: Song, Xiang, Jegelka, Savarese, Deep Metric Learning via Lifted Structured Feature Embedding,
    CVPR 2016, section 4.
    """
    check_rows(z=z)
    score, labels = as_score(score), as_ids(labels, len(z), "build_hard_batch: labels")
    seeds = pairs.flatten()
    if batch_size < len(seeds):
        raise UsageError(f"build_hard_batch: {len(pairs)} pairs already have {len(seeds)} rows, more than the requested {batch_size}")
    vectors = score.prepare_vectors(z)
    S = Scores(vectors[seeds], vectors, labels[seeds], labels, exclude_self=True, diagonal=seeds, score=score)
    hard = mine_hardest_negatives(S, max(1, batch_size - len(seeds)))
    rows = dict.fromkeys([*seeds.tolist(), *hard.T.flatten().tolist()])
    rows.pop(-1, None)
    return torch.tensor(list(rows)[:batch_size], device=labels.device)

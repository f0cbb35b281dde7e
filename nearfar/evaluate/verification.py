"""Verification metrics for classes that were not in the training set.

They measure distances by the nearest neighbor (recall at 1) and by one threshold for all pairs (equal error
rate).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.core import UsageError
from nearfar.core.argument_checks import check_masks, check_rows
from nearfar.evaluate.input_checks import check_labels, require_finite
from nearfar.evaluate.tied_scores import compute_hit_probability, count_above_and_tied
from nearfar.scores import Score, cosine

QUERIES_PER_BLOCK = 1024
"""Number of queries that are compared at once."""


def recall_at_1(x: Float[Tensor, "n d"], y: Int[Tensor, " n"], score: Score = cosine) -> float:
    """Compute recall at 1 over all samples.

    Recall at 1 is the share of samples whose nearest neighbor is of the same class. Each sample is compared
    with all others (leave one out). A sample that is alone in its class is not a query, but may be a
    neighbor. Ties count by their expectation over all orders.
    """
    check_rows(x=x)
    require_finite(x, "features")
    y = check_labels(y, x)
    _, inverse, size = y.unique(return_inverse=True, return_counts=True)
    asked = torch.nonzero(size[inverse] > 1)[:, 0]
    if not len(asked):
        raise UsageError("recall at 1: no class has two samples")
    hits = 0.0
    for rows in asked.split(QUERIES_PER_BLOCK):
        table, place = score(x[rows], x), torch.arange(len(rows), device=x.device)
        table[place, rows] = -torch.inf
        same = y[rows][:, None] == y
        same[place, rows] = False
        hits += float(compute_hit_probability(count_above_and_tied(table, same.nonzero()), 1).sum())
    return hits / len(asked)


def equal_error_rate(scores: Float[Tensor, " n"], same_class: Bool[Tensor, " n"]) -> float:
    """Compute the equal error rate of pairs.

    It is the error rate at the threshold where both kinds of error are equally frequent. Pairs whose score
    reaches the threshold are accepted as the same class. At the threshold, the share of accepted different
    pairs equals the share of rejected same pairs. The rate is interpolated between two thresholds. 0 is
    perfect, 1/2 is chance.
    """
    check_rows(1, scores=scores)
    check_masks(scores.shape, same_class=same_class)
    require_finite(scores, "scores of pairs")
    if not same_class.any() or same_class.all():
        raise UsageError("equal error rate: needs pairs of the same class and pairs of different classes")
    ordered, order = scores.sort(descending=True)
    # Equal scores are accepted together.
    last = torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool)])
    hits, accepted = same_class[order].double().cumsum(0)[last], torch.arange(1, len(scores) + 1)[last]
    nothing = torch.zeros(1, dtype=torch.float64)
    refused = 1 - torch.cat([nothing, hits / same_class.sum()])
    false = torch.cat([nothing, (accepted - hits) / (~same_class).sum()])
    gap = false - refused  # rises from -1 to 1
    i = int((gap >= 0).nonzero()[0])
    share = float(-gap[i - 1] / (gap[i] - gap[i - 1]))
    return float(false[i - 1] + share * (false[i] - false[i - 1]))

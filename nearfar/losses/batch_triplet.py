"""Triplet losses of a labeled batch: all, hardest or semi-hard triplets.

The losses are exact and computed in blocks of rows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.dense_rows import map_dense_rows
from nearfar.scores import Number, Scores


def batch_all(S: Scores, margin: Number = 0.2, average_over: Literal["active", "all"] = "active") -> Float[Tensor, ""]:
    r"""Compute the mean triplet hinge over all triplets of the table.

    \[ \mathcal L = \frac1T \sum_i \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + s_{ij} - s_{ip}) \]

    Args:
        S: Table of scores, such as `Scores.from_labels(z, labels, score=squared_euclidean)`. Any other table
            and score works too.
        margin: Margin of the hinge, m.
        average_over: "active" averages over the triplets that violate the margin, "all" over all triplets.

    Shapes: a scalar. T counts the positive terms (`average_over="active"`) or all terms. The loss is 0 if
    there is no triplet.

    Requirements: the mean over all terms vanishes once most triplets are learned. The mean over active terms
    does not.

    Relations: the mean of `triplet` over the batch. `sum_triplet_hinges` computes it without forming the
    triplets.

    Reference: Hermans, Beyer, Leibe, In Defense of the Triplet Loss for Person Re-Identification,
    arXiv:1703.07737.
    """
    total, active, every = sum_triplet_hinges(S, margin)
    return total.sum() / (active if average_over == "active" else every).sum().clamp_min(1)


def sum_triplet_hinges(S: Scores, margin: Number = 0.2) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Sum the triplet hinges of each row and count its triplets.

    The sum is linear in the scores as long as no candidate crosses the margin:

    \[ \sum_{p, j} \max(0, m + s_j - s_p) = m\,A + \sum_j c_j s_j - \sum_p c_p s_p, \]

    Here \(c\) is the number of violations in which a candidate takes part, and A is their total. The function
    sorts the negatives and takes prefix sums over the positives to get the counts. The cost is
    \(O(M \log M)\) for each row instead of \(|P| |N|\).

    Returns:
        Three tensors `(n,)`: the sum of the hinges of all triplets of the row, the number of positive hinges,
        and the number of triplets.
    """

    def sums(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        of_pos, of_neg = _count_violations(scores.detach(), pos, neg, margin)
        active = of_pos.sum(1)
        # A constant shift of all scores of a row does not change the sum.
        # Rounding errors are smallest around zero.
        centred = scores - scores.detach().mean(1, keepdim=True)
        return margin * active + ((of_neg - of_pos) * centred).sum(1), active, pos.sum(1) * neg.sum(1).to(scores)

    total, active, every = map_dense_rows(S, sums)
    return total, active, every


def batch_hard(S: Scores, margin: Number = 0.2) -> Float[Tensor, " n"]:
    r"""Compute the hinge of each anchor's farthest positive and nearest negative.

    \[ \ell_i = \max\big(0,\; m + \max_{j \in N_i} s_{ij} - \min_{p \in P_i} s_{ip}\big) \]

    Shapes: a table of n rows gives `(n,)`; take the mean. Rows without positives or negatives have loss 0,
    and `.mean()` counts these zeros. `mean_over_rows_with_positives` leaves out rows without positives, as
    pytorch-metric-learning does.

    Requirements: batches of P classes with K samples each. Equally hard candidates share the gradient.

    Relations: `batch_all` takes the mean of a row's hinges, `batch_hard` the largest. Outliers among the
    positives have a large influence.

    Reference: Hermans, Beyer, Leibe, arXiv:1703.07737 (unsquared distances: `score=euclidean`).
    """
    return F.relu(_hardest_gap(S) + margin)


def batch_hard_soft_margin(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute `batch_hard` with a softplus instead of the hinge.

    The softplus is \(\log(1 + e^x)\). It needs no margin, and it still pulls on triplets beyond the margin.

    Shapes and reference: as `batch_hard`. Rows without positives or negatives have loss 0.
    """
    return F.softplus(_hardest_gap(S))


def semi_hard_triplet(S: Scores, margin: Number = 0.2) -> Float[Tensor, ""]:
    r"""Compute the mean triplet hinge over semi-hard negatives.

    Each pair of anchor and positive uses the nearest negative that lies farther away than the positive, but
    within the margin.

    \[ \mathcal L = \frac1T \sum_i \sum_{p \in P_i} \big(m + s_{ij(p)} - s_{ip}\big), \qquad
       j(p) = \arg\max_{j \in N_i} \{ s_{ij} : s_{ip} - m < s_{ij} < s_{ip} \} \]

    Shapes: a scalar, the mean over the T pairs that have such a negative. The loss is 0 if no pair has one.

    Relations: this loss ignores negatives that are nearer than the positive. `batch_hard` selects exactly
    these. Early in training they are mostly noise, and following them can collapse the embedding.

    Reference: Schroff, Kalenichenko, Philbin, FaceNet, CVPR 2015.
    """

    def sums(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        if scores.shape[1] == 0:
            return scores.new_zeros(len(scores)), scores.new_zeros(len(scores))
        rising, order = torch.where(neg, scores.detach(), -math.inf).sort(1)
        positives = torch.where(pos, scores.detach(), -math.inf)
        below = torch.searchsorted(rising, positives) - 1  # -1 for all but positives
        nearest = order.gather(1, below.clamp_min(0))
        gap = scores - scores.gather(1, nearest)
        chosen = (below >= 0) & neg.gather(1, nearest) & (gap < margin)
        # Comparisons with NaN are false, so no NaN is chosen.
        # `amax` and `sort` treat NaN as the largest value.
        top = positives.amax(1)
        unknown = top.isnan() | (rising[:, -1].isnan() & (top != -math.inf))
        return torch.where(chosen, margin - gap, 0.0).sum(1).masked_fill(unknown, math.nan), chosen.sum(1).to(scores)

    total, count = map_dense_rows(S, sums)
    return total.sum() / count.sum().clamp_min(1)


def _count_violations(scores: Tensor, pos: Tensor, neg: Tensor, margin: Number) -> tuple[Tensor, Tensor]:
    """Count the margin violations of each positive and each negative.

    The first tensor counts, for each positive, the negatives that violate its margin. The second counts, for
    each negative, the positives whose margin it violates. All other entries are 0.
    """
    columns = scores.shape[1]
    rising, order = torch.where(neg, scores + margin, -math.inf).sort(1)
    # Negatives from index `first` on violate the margin of this positive.
    first = torch.searchsorted(rising, torch.where(pos, scores, math.inf), right=True)
    met = scores.new_zeros(len(scores), columns + 1).scatter_add_(1, first, torch.ones_like(scores))[:, :columns].cumsum(1)
    return (columns - first).to(scores), torch.empty_like(scores).scatter_(1, order, met) * neg


def _hardest_gap(S: Scores) -> Tensor:
    """Compute each row's highest negative score minus its lowest positive score.

    The gap is a very large negative number for rows without positives or negatives.
    """

    def gap(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        if scores.shape[1] == 0:
            return (scores.new_full((len(scores),), -math.inf),)
        largest = torch.finfo(scores.dtype).max
        return (torch.where(neg, scores, -largest).amax(1) - torch.where(pos, scores, largest).amin(1),)

    return map_dense_rows(S, gap)[0]

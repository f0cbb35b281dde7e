"""Triplet losses of a labelled batch: all triplets, the hardest, the semi-hard. Exact, in blocks of rows."""

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
    r"""Every triplet of the table, averaged over those that violate the margin, or over all:

    \[ \mathcal L = \frac1T \sum_i \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + s_{ij} - s_{ip}) \]

    Shapes: a scalar; T counts the positive terms (`over="active"`) or all terms. 0 where there is no triplet.

    Requirements: `batch_all(labelled(z, y, score=squared_euclidean))`, or any other table and score. The mean over
    all terms fades as most triplets are learned; that over active ones does not.

    Relations: the mean of `triplet` over the batch, without ever forming the triplets (`triplet_sums`).

    Reference: Hermans, Beyer, Leibe, In Defense of the Triplet Loss for Person Re-Identification, arXiv:1703.07737.
    """
    total, active, every = sum_triplet_hinges(S, margin)
    return total.sum() / (active if average_over == "active" else every).sum().clamp_min(1)


def sum_triplet_hinges(S: Scores, margin: Number = 0.2) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Of each row: the sum of the hinges of all its triplets, how many of them are positive, how many triplets there are.

    The sum is linear in the scores as long as nobody crosses the margin,

    \[ \sum_{p, j} \max(0, m + s_j - s_p) = m\,A + \sum_j c_j s_j - \sum_p c_p s_p, \]

    with \(c\) the number of violations a candidate takes part in and A their total. The counts come from sorting the
    negatives and from prefix sums over the positives: \(O(M \log M)\) a row instead of \(|P| |N|\).
    """

    def sums(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        of_pos, of_neg = _count_violations(scores.detach(), pos, neg, margin)
        active = of_pos.sum(1)
        # The sum does not change when all scores of a row do; around zero it loses the fewest digits.
        centred = scores - scores.detach().mean(1, keepdim=True)
        return margin * active + ((of_neg - of_pos) * centred).sum(1), active, pos.sum(1) * neg.sum(1).to(scores)

    total, active, every = map_dense_rows(S, sums)
    return total, active, every


def batch_hard(S: Scores, margin: Number = 0.2) -> Float[Tensor, " n"]:
    r"""Of each anchor the farthest positive and the nearest negative:

    \[ \ell_i = \max\big(0,\; m + \max_{j \in N_i} s_{ij} - \min_{p \in P_i} s_{ip}\big) \]

    Shapes: a table of n rows gives `(n,)`, 0 for rows without positives or negatives; take the mean. These zeros count
    in `.mean()`; `mean_over_rows_with_positives` leaves rows without positives out, as pytorch-metric-learning does.

    Requirements: batches of P classes with K samples each. Equally hard candidates share the gradient.

    Relations: `batch_all` with the largest of a row's hinges for their mean; outliers among the positives weigh much.

    Reference: Hermans, Beyer, Leibe, arXiv:1703.07737 (unsquared distances: `score=euclidean`).
    """
    return F.relu(_hardest_gap(S) + margin)


def batch_hard_soft_margin(S: Scores) -> Float[Tensor, " n"]:
    r"""`batch_hard` with \(\log(1 + e^x)\) for the hinge: no margin to choose, and pulls on beyond it.

    Shapes and reference: as `batch_hard`; 0 for rows without positives or negatives.
    """
    return F.softplus(_hardest_gap(S))


def semi_hard_triplet(S: Scores, margin: Number = 0.2) -> Float[Tensor, ""]:
    r"""Every anchor and positive with the nearest negative that lies beyond the positive, but within the margin:

    \[ \mathcal L = \frac1T \sum_i \sum_{p \in P_i} \big(m + s_{ij(p)} - s_{ip}\big), \qquad
       j(p) = \arg\max_{j \in N_i} \{ s_{ij} : s_{ip} - m < s_{ij} < s_{ip} \} \]

    Shapes: a scalar, the mean over the T pairs that have such a negative; 0 where none has.

    Relations: negatives nearer than the positive, which `batch_hard` is after, are left alone here: early in training
    they are mostly noise, and following them can collapse the embedding.

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
        # No comparison with NaN is true, so that none is chosen. It is the largest in `amax` and in `sort`.
        top = positives.amax(1)
        unknown = top.isnan() | (rising[:, -1].isnan() & (top != -math.inf))
        return torch.where(chosen, margin - gap, 0.0).sum(1).masked_fill(unknown, math.nan), chosen.sum(1).to(scores)

    total, count = map_dense_rows(S, sums)
    return total.sum() / count.sum().clamp_min(1)


def _count_violations(scores: Tensor, pos: Tensor, neg: Tensor, margin: Number) -> tuple[Tensor, Tensor]:
    """With how many negatives (positives) each positive (negative) violates the margin; 0 for everybody else."""
    columns = scores.shape[1]
    rising, order = torch.where(neg, scores + margin, -math.inf).sort(1)
    first = torch.searchsorted(rising, torch.where(pos, scores, math.inf), right=True)  # negatives from here on violate this positive
    met = scores.new_zeros(len(scores), columns + 1).scatter_add_(1, first, torch.ones_like(scores))[:, :columns].cumsum(1)
    return (columns - first).to(scores), torch.empty_like(scores).scatter_(1, order, met) * neg


def _hardest_gap(S: Scores) -> Tensor:
    """Highest score of a negative less lowest of a positive; hugely negative where one of them is missing."""

    def gap(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        if scores.shape[1] == 0:
            return (scores.new_full((len(scores),), -math.inf),)
        largest = torch.finfo(scores.dtype).max
        return (torch.where(neg, scores, -largest).amax(1) - torch.where(pos, scores, largest).amin(1),)

    return map_dense_rows(S, gap)[0]

"""Margin-based loss: a learned boundary between near and far, with a margin on either side."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.dense_rows import check_distances, map_dense_rows
from nearfar.scores import Number, Scalar, Scores


def margin_based(S: Scores, distance_boundary: Scalar | Float[Tensor, " n"] = 1.2, margin: Number = 0.2) -> Float[Tensor, ""]:
    r"""Compute the mean hinge of distances around a boundary.

    Positives should lie within \(\beta - \alpha\), negatives beyond \(\beta + \alpha\). With \(D = -s\),

    \[ \mathcal L = \frac1T \sum_i \Big( \sum_{p \in P_i} (\alpha + D_{ip} - \beta_i)_+
                                       + \sum_{j \in N_i} (\alpha - D_{ij} + \beta_i)_+ \Big) \]

    Args:
        S: Table of minus distances.
        distance_boundary: Boundary \(\beta\): a number, a learned scalar, or one value for each row.
        margin: Margin \(\alpha\) on either side.

    Shapes: a scalar, the mean over the T positive terms. The loss is 0 if no term is positive.

    Requirements: with `distance_boundary=boundary[labels]` each class learns its own boundary. The paper adds
    \(\nu \sum \beta\) to the loss. The paper samples negatives like this:

        S = Scores.from_labels(l2_normalize(z), labels, score=euclidean)
        columns = draw_distance_weighted_negatives(S, num_negatives, rng_key, slots)
        margin_based(select_negatives(S, columns), distance_boundary)

    Relations: like `contrastive_pair`, but positives that are near enough have no gradient. With a free
    boundary for every anchor it is a triplet loss relative to the boundary.

    Reference: Wu, Manmatha, Smola, Krähenbühl, Sampling Matters in Deep Embedding Learning, ICCV 2017.
    """
    check_distances(S, "margin_based")

    def cost(scores: Tensor, pos: Tensor, neg: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        beyond = -scores - beta[:, None]
        terms = torch.where(pos, F.relu(margin + beyond), torch.where(neg, F.relu(margin - beyond), 0.0))
        return terms.sum(1), (terms > 0).sum(1).to(scores)

    boundary = torch.as_tensor(distance_boundary, dtype=S.query.dtype, device=S.query.device).expand(len(S))
    total, active = map_dense_rows(S, cost, (boundary,))
    return total.sum() / active.sum().clamp_min(1)

"""The margin-based loss: one boundary between near and far, learned, and a margin on either side of it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.dense_rows import check_distances, map_dense_rows
from nearfar.scores import Number, Scalar, Scores


def margin_based(S: Scores, distance_boundary: Scalar | Float[Tensor, " n"] = 1.2, margin: Number = 0.2) -> Float[Tensor, ""]:
    r"""Positives within \(\beta - \alpha\), negatives beyond \(\beta + \alpha\), with \(D = -s\):

    \[ \mathcal L = \frac1T \sum_i \Big( \sum_{p \in P_i} (\alpha + D_{ip} - \beta_i)_+
                                       + \sum_{j \in N_i} (\alpha - D_{ij} + \beta_i)_+ \Big) \]

    Shapes: a scalar, the mean over the T terms that are positive; 0 where none is.

    Requirements: \(\alpha\) is `margin`; `beta` is a number, a learned scalar, or one value a row: `beta[y]` learns a
    boundary for each class (the paper adds \(\nu \sum \beta\) to the loss). The paper's sampling of negatives is

        S = labelled(unit(z), y, score=euclidean)
        margin_based(only_negatives(S, distance_weighted_negatives(S, k, key, slots)), beta)

    Relations: `pair` that leaves positives alone once they are near enough; with a free beta for every anchor a triplet
    loss relative to it.

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

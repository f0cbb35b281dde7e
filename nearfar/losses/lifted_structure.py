"""Lifted structure: every positive pair against all negatives of both its ends at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.dense_rows import check_distances, map_dense_rows
from nearfar.scores import Number, Scores


def lifted_structure(S: Scores, margin: Number = 1.0) -> Float[Tensor, ""]:
    r"""The hardest negative of either end of each positive pair, with \(D = -s\):

    \[ \mathcal L = \frac{1}{2 |P|} \sum_{(i, j) \in P} \max(0, L_{ij})^2, \qquad
       L_{ij} = D_{ij} + \max\Big( \max_{k \in N_i} (m - D_{ik}),\; \max_{l \in N_j} (m - D_{jl}) \Big) \]

    Shapes: `lifted(labelled(z, y, score=euclidean))` is a scalar; 0 without positive pairs or without negatives.

    Requirements: scores are minus distances; no private candidates.

    Relations: the form the paper starts from and finds hard to optimise; it trains `lifted_smooth`.

    Reference: Song, Xiang, Jegelka, Savarese, Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    """
    check_distances(S, "lifted_structure")
    return _mean_over_pairs(S, margin, map_dense_rows(S, _nearest_negative)[0], map_dense_rows(S.T, _nearest_negative)[0], torch.maximum)


def lifted_structure_smooth(S: Scores, margin: Number = 1.0) -> Float[Tensor, ""]:
    r"""`lifted` with log-sum-exp for the two maxima, which is an upper bound of it:

    \[ L_{ij} = D_{ij} + \log\Big( \sum_{k \in N_i} e^{m - D_{ik}} + \sum_{l \in N_j} e^{m - D_{jl}} \Big) \]

    Shapes, requirements, reference: as `lifted`. The negatives enter by row statistics, each row's computed once.
    """
    check_distances(S, "lifted_structure_smooth")
    (of_rows,), (of_columns,) = S.row_and_column_stats(Scores.neg_lse)
    lowest = torch.finfo(of_rows.dtype).min / 4  # for rows without negatives: -inf has no gradient to speak of
    return _mean_over_pairs(S, margin, of_rows.clamp_min(lowest), of_columns.clamp_min(lowest), torch.logaddexp)


def lifted_structure_generalized(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""All positives of an anchor together against all its negatives:

    \[ \ell_i = \Big[ \log \sum_{p \in P_i} e^{D_{ip}} + \log \sum_{j \in N_i} e^{m - D_{ij}} \Big]_+ \]

    Shapes: a table of n rows gives `(n,)`, 0 for rows without positives or negatives; take the mean.

    Relations: a smooth `batch_hard`, to which it tends for distances that are large against 1.

    Reference: Hermans, Beyer, Leibe, In Defense of the Triplet Loss for Person Re-Identification, arXiv:1703.07737.
    """
    check_distances(S, "lifted_structure_generalized")
    farthest, nearest, pos_count, neg_count = S.stats(Scores.pos_lse.with_power(-1), Scores.neg_lse, Scores.pos_count, Scores.neg_count)
    return torch.where((pos_count > 0) & (neg_count > 0), F.relu(farthest + nearest + margin), 0.0)


def _nearest_negative(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
    lowest = torch.finfo(scores.dtype).min
    return (torch.where(neg, scores, lowest).amax(1) if scores.shape[1] else scores.new_full((len(scores),), lowest),)


def _mean_over_pairs(S: Scores, margin: Number, of_rows: Tensor, of_columns: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Half the mean of max(0, L)² over positive pairs, given what the negatives of each row and of each column amount to."""

    def cost(scores: Tensor, pos: Tensor, neg: Tensor, mine: Tensor, theirs: Tensor) -> tuple[Tensor, ...]:
        violation = F.relu(margin - scores + join(mine[:, None], theirs[None]))
        return torch.where(pos, violation.square(), 0.0).sum(1), pos.sum(1).to(scores)

    total, pairs = map_dense_rows(S, cost, (of_rows,), (of_columns,))
    return total.sum() / (2 * pairs.sum().clamp_min(1))

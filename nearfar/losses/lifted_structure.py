"""Lifted structure losses: each positive pair against all negatives of both its rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.losses.dense_rows import check_distances, map_dense_rows
from nearfar.scores import Number, Scores


def lifted_structure(S: Scores, margin: Number = 1.0) -> Float[Tensor, ""]:
    r"""Compute the lifted structure loss with the hardest negatives.

    Each positive pair uses the hardest negative of either of its rows. With \(D = -s\),

    \[ \mathcal L = \frac{1}{2 |P|} \sum_{(i, j) \in P} \max(0, L_{ij})^2, \qquad
       L_{ij} = D_{ij} + \max\Big( \max_{k \in N_i} (m - D_{ik}),\; \max_{l \in N_j} (m - D_{jl}) \Big) \]

    Shapes: `lifted_structure(Scores.from_labels(z, labels, score=euclidean))` is a scalar. The loss is 0
    without positive pairs or without negatives.

    Requirements: scores are minus distances; no private candidates.

    Relations: the paper starts from this form and finds it hard to optimize. It trains
    `lifted_structure_smooth`.

    Reference: Song, Xiang, Jegelka, Savarese, Deep Metric Learning via Lifted Structured Feature Embedding,
    CVPR 2016.
    """
    check_distances(S, "lifted_structure")
    return _mean_over_pairs(S, margin, map_dense_rows(S, _nearest_negative)[0], map_dense_rows(S.T, _nearest_negative)[0], torch.maximum)


def lifted_structure_smooth(S: Scores, margin: Number = 1.0) -> Float[Tensor, ""]:
    r"""Compute `lifted_structure` with log-sum-exp instead of the two maxima.

    This is an upper bound of `lifted_structure`:

    \[ L_{ij} = D_{ij} + \log\Big( \sum_{k \in N_i} e^{m - D_{ik}} + \sum_{l \in N_j} e^{m - D_{jl}} \Big) \]

    Shapes, requirements, reference: as `lifted_structure`. The negatives enter as row statistics, computed
    once for each row.
    """
    check_distances(S, "lifted_structure_smooth")
    (of_rows,), (of_columns,) = S.row_and_column_stats(Scores.neg_lse)
    # Rows without negatives get a large finite value, because -inf would give no useful gradient.
    lowest = torch.finfo(of_rows.dtype).min / 4
    return _mean_over_pairs(S, margin, of_rows.clamp_min(lowest), of_columns.clamp_min(lowest), torch.logaddexp)


def lifted_structure_generalized(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the hinge of all positives and all negatives of each anchor.

    \[ \ell_i = \Big[ \log \sum_{p \in P_i} e^{D_{ip}} + \log \sum_{j \in N_i} e^{m - D_{ij}} \Big]_+ \]

    Shapes: a table of n rows gives `(n,)`; take the mean. Rows without positives or negatives have loss 0.

    Relations: a smooth version of `batch_hard`. It tends to `batch_hard` for distances that are large
    compared with 1.

    Reference: Hermans, Beyer, Leibe, In Defense of the Triplet Loss for Person Re-Identification,
    arXiv:1703.07737.
    """
    check_distances(S, "lifted_structure_generalized")
    farthest, nearest, pos_count, neg_count = S.stats(Scores.pos_lse.with_power(-1), Scores.neg_lse, Scores.pos_count, Scores.neg_count)
    return torch.where((pos_count > 0) & (neg_count > 0), F.relu(farthest + nearest + margin), 0.0)


def _nearest_negative(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
    lowest = torch.finfo(scores.dtype).min
    return (torch.where(neg, scores, lowest).amax(1) if scores.shape[1] else scores.new_full((len(scores),), lowest),)


def _mean_over_pairs(S: Scores, margin: Number, of_rows: Tensor, of_columns: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Compute half the mean of max(0, L)² over positive pairs.

    `of_rows` and `of_columns` hold the negatives' term of each row and of each column. `join` combines the
    two.
    """

    def cost(scores: Tensor, pos: Tensor, neg: Tensor, mine: Tensor, theirs: Tensor) -> tuple[Tensor, ...]:
        violation = F.relu(margin - scores + join(mine[:, None], theirs[None]))
        return torch.where(pos, violation.square(), 0.0).sum(1), pos.sum(1).to(scores)

    total, pairs = map_dense_rows(S, cost, (of_rows,), (of_columns,))
    return total.sum() / (2 * pairs.sum().clamp_min(1))

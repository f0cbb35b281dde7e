"""Means of row losses that leave out rows."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths
from nearfar.scores import Scores


def mean_over_rows_with_positives(losses: Float[Tensor, " n"], S: Scores) -> Float[Tensor, ""]:
    """Average the losses of the rows that have a positive.

    The result is 0 if no row has a positive. Rows without positives have loss 0 in this package, and
    `.mean()` counts these zeros. Such a mean depends on the number of these rows in a batch. This function
    leaves them out, as pytorch-metric-learning does.

    Relations: `mean_over_rows_with_positives(supcon(S), S)` with
    `S = Scores.from_labels(z, labels) / temperature` equals pytorch-metric-learning's
    `SupConLoss(temperature)`. With `mil_nce(S)` on
    `Scores.from_labels(z, labels, score=squared_euclidean) / temperature` it equals
    `NCALoss(1 / temperature)`.
    """
    check_equal_lengths(losses=losses, S=S.query)
    has_positive = S.pos_count > 0
    return (losses * has_positive).sum() / has_positive.sum().clamp_min(1)

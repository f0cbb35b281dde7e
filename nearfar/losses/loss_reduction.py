"""Means of row losses that leave rows out."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths
from nearfar.scores import Scores


def mean_over_rows_with_positives(losses: Float[Tensor, " n"], S: Scores) -> Float[Tensor, ""]:
    r"""Mean over the rows of the table that have a positive; 0 if none has.

    Losses of rows without positives are 0 here and count in `.mean()`, which then depends on how many such rows a
    batch has. pytorch-metric-learning leaves them out of the mean, as this function does.

    Relations: `mean_over_rows_with_positives(supcon(S), S)` with `S = labelled(z, y) / tau` is pytorch-metric-learning's
    `SupConLoss(tau)`, and with `info_nce_in(S)` on `labelled(z, y, score=squared_euclidean) / tau` its `NCALoss(1 / tau)`.
    """
    check_equal_lengths(losses=losses, S=S.query)
    has_positive = S.pos_count > 0
    return (losses * has_positive).sum() / has_positive.sum().clamp_min(1)

"""Spearman's rank correlation with ties, also for many bootstrap samples at once."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.evaluate.input_checks import require_finite


def spearman(
    a: Float[Tensor, " n"], b: Float[Tensor, " n"], counts: Float[Tensor, "s n"] | None = None
) -> Float[Tensor, ""] | Float[Tensor, " s"]:
    r"""Compute Spearman's correlation: Pearson's correlation of the ranks.

    Equal values share the mean of their ranks. The result is 0 if all values of one side are equal.

    \[ \rho = \frac{\sum_i c_i\,(r_i - \bar r)(q_i - \bar q)}{\sqrt{\sum_i c_i\,(r_i - \bar r)^2 \, \sum_i c_i\,(q_i - \bar q)^2}} \]

    Args:
        a: First values (n,).
        b: Second values (n,).
        counts: Number of times that row i is in bootstrap sample s (s, n). Each bootstrap sample gets its own
            correlation. The ranks follow from cumulated counts, so the values are sorted once for all
            samples.

    Returns:
        A scalar, or (s,) with `counts`.
    """
    check_rows(1, a=a, b=b)
    for x, name in ((a, "spearman, first values"), (b, "spearman, second values")):
        require_finite(x, name)  # NaN would sort as the largest value
    weights = torch.ones(1, len(a), dtype=torch.float64, device=a.device) if counts is None else counts.double()
    r, q = (_center_ranks(x, weights) for x in (a, b))
    covariance, of_r, of_q = ((weights * product).sum(1) for product in (r * q, r * r, q * q))
    scale = (of_r * of_q).sqrt()
    rho = torch.where(scale > 0, covariance / scale.clamp_min(torch.finfo(scale.dtype).tiny), 0.0)
    return rho[0] if counts is None else rho


def _center_ranks(x: Float[Tensor, " n"], weights: Float[Tensor, "s n"]) -> Float[Tensor, "s n"]:
    """Compute the ranks minus their mean.

    The mean is (total + 1) / 2 for any number of ties.
    """
    values, group = x.unique(return_inverse=True)
    share = weights.new_zeros(len(weights), len(values)).index_add_(1, group, weights)
    middle = share.cumsum(1) - share / 2
    return middle[:, group] - weights.sum(1, keepdim=True) / 2

"""Alignment and uniformity on the unit sphere: the two properties that contrastive losses optimize."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows, check_rows_of_same_shape
from nearfar.scores import Number, Scores, l2_normalize, log_sum_exp


def alignment(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], exponent: Number = 2.0) -> Float[Tensor, ""]:
    r"""Compute the mean distance of positives on the unit sphere.

    It is \(\frac1n \sum_i \lVert \bar a_i - \bar b_i \rVert^\alpha\), with \(\alpha > 0\) the `exponent`. The
    function normalizes the vectors. Pairs that coincide get no gradient.

    Relations: `exponent=2` is `byol` without the stopped gradient. Alone, the loss collapses the embedding;
    `uniformity` prevents this. InfoNCE with many negatives tends to the sum of the two.

    Reference: Wang, Isola, Understanding Contrastive Representation Learning through Alignment and
    Uniformity, ICML 2020.
    """
    check_rows_of_same_shape(a=a, b=b)
    check_positive(exponent=exponent)
    squared = (l2_normalize(a) - l2_normalize(b)).square().sum(1)
    if exponent == 2:
        return squared.mean()
    together = squared == 0
    return torch.where(together, 0.0, torch.where(together, 1.0, squared).pow(exponent / 2)).mean()


def uniformity(z: Float[Tensor, "n d"], kernel_coefficient: Number = 2.0) -> Float[Tensor, ""]:
    r"""Compute the logarithm of the mean Gaussian potential over pairs.

    It measures how evenly the rows cover the sphere:

    \[ \log \frac{1}{n (n - 1)} \sum_{i \ne j} e^{-t \lVert \bar z_i - \bar z_j \rVert^2} \]

    The coefficient t is `kernel_coefficient`. The function normalizes the vectors. The loss is 0 if all rows
    coincide (and for a single row), and lower for more even coverage.

    Relations: the negatives' part of InfoNCE on one view. It uses the same streamed statistics, so the table
    of distances is never stored.

    Reference: Wang, Isola, ICML 2020.
    """
    check_rows(z=z)
    check_positive(kernel_coefficient=kernel_coefficient)
    n = len(z)
    if n < 2:
        return z.sum() * 0.0
    # On the sphere, |x - y|² = 2 - 2 cos.
    potential = Scores.from_views(z) * (2 * kernel_coefficient) + (-2 * kernel_coefficient)
    return log_sum_exp(potential.neg_lse[None])[0] - math.log(n * (n - 1))

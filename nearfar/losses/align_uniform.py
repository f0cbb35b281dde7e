"""Alignment and uniformity together, as an objective."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.losses.hypersphere import alignment, uniformity
from nearfar.scores import Number


def align_uniform(
    a: Float[Tensor, "n d"],
    b: Float[Tensor, "n d"],
    uniformity_weight: Number = 1.0,
    exponent: Number = 2.0,
    kernel_coefficient: Number = 2.0,
) -> Float[Tensor, ""]:
    r"""\[ \mathcal L = \mathcal L_{\text{align}}(a, b; \alpha)
                    + \tfrac\lambda2 \big[\mathcal L_{\text{unif}}(a; t) + \mathcal L_{\text{unif}}(b; t)\big] \]

    Relations: either half alone fails: `alignment` collapses, `uniformity` forgets what is alike.

    Reference: Wang, Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity, ICML 2020.
    """
    return alignment(a, b, exponent) + uniformity_weight * (uniformity(a, kernel_coefficient) + uniformity(b, kernel_coefficient)) / 2

"""Alignment and uniformity combined in one loss."""

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
    r"""Compute the weighted sum of the alignment and uniformity losses.

    \[ \mathcal L = \mathcal L_{\text{align}}(a, b; \alpha)
                    + \tfrac\lambda2 \big[\mathcal L_{\text{unif}}(a; t) + \mathcal L_{\text{unif}}(b; t)\big] \]

    Args:
        a: Embeddings of one view.
        b: Embeddings of the other view, row by row.
        uniformity_weight: Weight of the uniformity terms, \(\lambda\).
        exponent: Exponent of the distances between positives, \(\alpha\).
        kernel_coefficient: Coefficient of the Gaussian kernel, \(t\).

    Relations: neither part works alone. With `alignment` alone the embedding collapses. `uniformity` alone
    ignores which samples are alike.

    Reference: Wang, Isola, Understanding Contrastive Representation Learning through Alignment and
    Uniformity, ICML 2020.
    """
    return alignment(a, b, exponent) + uniformity_weight * (uniformity(a, kernel_coefficient) + uniformity(b, kernel_coefficient)) / 2

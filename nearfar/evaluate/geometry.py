"""The shape of a cloud of features: is it collapsed, how many directions does it use, how even is it on the sphere.

Alignment and uniformity (Wang & Isola, 2020) are in `nearfar.losses`: there they are trained on, in `compare` they are measured.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.evaluate.input_checks import require_finite

MAX_GEOMETRY_SAMPLES = 4096
"""Geometry is measured on at most this many samples; pairwise distances grow with their square."""


def spectrum(x: Float[Tensor, "n d"]) -> Float[Tensor, " k"]:
    """Singular values of the centred features, falling, divided by the largest: how fast the used directions run out.

    A steep fall or a floor of zeros is dimensional collapse (Jing et al., 2022). All zeros if all rows are equal.
    """
    check_rows(x=x)
    require_finite(x, "features")
    values = singular_values(x.double() - x.double().mean(0))
    return (values / values[0].clamp_min(torch.finfo(values.dtype).tiny)).float()


def effective_rank(x: Float[Tensor, "n d"]) -> float:
    r"""\( \exp(-\sum_k p_k \log p_k) \) with \( p_k = \sigma_k / \sum_j \sigma_j \), the singular values of the features as they are.

    Between 1 (all rows on a line: collapse) and min(n, d) (all directions alike). Not centred, so that features
    collapsed to one point count as 1, not as the rank of their rounding errors.

    Reference: Roy & Vetterli, The effective rank, 2007; Garrido et al., RankMe, 2023.
    """
    check_rows(x=x)
    values = singular_values(x)
    p = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return float(torch.special.entr(p).sum().exp())


def spread(x: Float[Tensor, "n d"]) -> float:
    """Standard deviation of each coordinate of the L2-normalised rows, averaged and times sqrt(d).

    About 1 if directions are spread evenly over the sphere, near 0 if the encoder maps everything to one point.

    Reference: Chen & He, Exploring Simple Siamese Representation Learning, 2021, figure 2.
    """
    check_rows(x=x)
    require_finite(x, "features")
    return float(F.normalize(x, dim=1).std(0, correction=0).mean() * x.shape[1] ** 0.5)


def singular_values(x: Float[Tensor, "n d"]) -> Float[Tensor, " k"]:
    """Falling, float64, by the eigenvalues of the smaller Gram matrix: much faster than an SVD and exact to about 1e-8 of the largest."""
    require_finite(x, "features")
    x = x.double()
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)

"""Geometry of features: collapse, number of used directions and evenness on the sphere.

Alignment and uniformity (Wang & Isola, 2020) are in `nearfar.losses`. Training can minimize them there;
`compare` measures them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.evaluate.input_checks import require_finite

MAX_GEOMETRY_SAMPLES = 4096
"""Maximum number of samples for geometry. The number of pairwise distances grows with its square."""


def spectrum(x: Float[Tensor, "n d"]) -> Float[Tensor, " k"]:
    """Compute the singular values of centered features, relative to the largest.

    The values are in descending order. The spectrum shows how many directions the features use. A steep fall
    or a floor of zeros is dimensional collapse (Jing et al., 2022). All values are zero if all rows are
    equal.
    """
    check_rows(x=x)
    require_finite(x, "features")
    values = singular_values(x.double() - x.double().mean(0))
    return (values / values[0].clamp_min(torch.finfo(values.dtype).tiny)).float()


def effective_rank(x: Float[Tensor, "n d"]) -> float:
    r"""Compute the exponential of the entropy of the normalized singular values.

    The effective rank is \( \exp(-\sum_k p_k \log p_k) \) with \( p_k = \sigma_k / \sum_j \sigma_j \), the
    singular values of the features.

    The value lies between 1 (all rows on a line: collapse) and min(n, d) (all directions alike). The features
    are not centered, so features collapsed to one point count as 1, and not as the rank of their rounding
    errors.

    Reference: Roy & Vetterli, The effective rank, 2007; Garrido et al., RankMe, 2023.
    """
    check_rows(x=x)
    values = singular_values(x)
    p = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return float(torch.special.entr(p).sum().exp())


def spread(x: Float[Tensor, "n d"]) -> float:
    """Compute the spread of the directions of the rows.

    The spread is the standard deviation of the coordinates of L2-normalized rows, averaged and times sqrt(d).
    It is about 1 if directions are spread evenly over the sphere, and near 0 if the encoder maps everything
    to one point.

    Reference: Chen & He, Exploring Simple Siamese Representation Learning, 2021, figure 2.
    """
    check_rows(x=x)
    require_finite(x, "features")
    return float(F.normalize(x, dim=1).std(0, correction=0).mean() * x.shape[1] ** 0.5)


def singular_values(x: Float[Tensor, "n d"]) -> Float[Tensor, " k"]:
    """Compute the singular values in float64, in descending order.

    They come from the eigenvalues of the smaller Gram matrix. This is much faster than an SVD and exact to
    about 1e-8 of the largest value.
    """
    require_finite(x, "features")
    x = x.double()
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)

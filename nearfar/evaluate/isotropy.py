"""Isotropy of embeddings: even directions or a narrow cone.

Vectors of language models often point into a narrow cone (anisotropy). `spectrum` and `effective_rank` in
`nearfar.evaluate.geometry` measure how many directions are used. This module measures how evenly they are
used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError
from nearfar.evaluate.geometry import effective_rank, singular_values
from nearfar.evaluate.input_checks import check_features, require_finite


@dataclass(frozen=True)
class Isotropy:
    """Isotropy measures of a set of embeddings.

    Attributes:
        mean_cosine: Mean cosine of all pairs of different rows; 0 if isotropic.
        std_cosine: Standard deviation of these cosines; 1/sqrt(d) if isotropic.
        partition_isotropy: Result of `partition_isotropy`; 1 if isotropic.
        first_component_share: Share of the variance along the first principal direction; 1/d if isotropic.
        effective_rank: Result of `effective_rank`.
    """

    mean_cosine: float
    std_cosine: float
    partition_isotropy: float
    first_component_share: float
    effective_rank: float


def measure_isotropy(x: Float[Tensor, "n d"]) -> Isotropy:
    """Compute all isotropy measures of a set of embeddings."""
    x = check_features(x, "embeddings")
    mean, std = cosine_moments(x)
    variance = singular_values(x - x.mean(0)).square()
    share = float(variance[0] / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny))
    return Isotropy(mean, std, partition_isotropy(x), share, effective_rank(x))


def cosine_moments(x: Float[Tensor, "n d"]) -> tuple[float, float]:
    r"""Compute mean and standard deviation of all pairwise cosines.

    The pairs are those of different rows. The result is exact, and the pairs are never formed:

    \[ \sum_{i \ne j} u_i^\top u_j = \lVert \textstyle\sum_i u_i \rVert^2 - \sum_i \lVert u_i \rVert^2, \qquad
       \sum_{i \ne j} (u_i^\top u_j)^2 = \lVert U^\top U \rVert_F^2 - \sum_i \lVert u_i \rVert^4 \]

    with unit rows \(u_i\) (a zero row stays zero). Other implementations estimate these values from random
    pairs.

    Reference: Ethayarajh, How Contextual are Contextualized Word Representations?, EMNLP 2019.
    """
    n = len(x)
    if n < 2:
        raise DataError(f"the cosine of pairs needs at least 2 rows, got {n}")
    require_finite(x, "embeddings")
    u = F.normalize(x.double(), dim=1)
    gram = u.T @ u if u.shape[1] < n else u @ u.T
    own = u.square().sum(1)
    mean = (u.sum(0).square().sum() - own.sum()) / (n * (n - 1))
    square = (gram.square().sum() - own.square().sum()) / (n * (n - 1))
    return float(mean), float((square - mean.square()).clamp_min(0).sqrt())


def partition_isotropy(x: Float[Tensor, "n d"]) -> float:
    r"""Compute the ratio of the smallest to the largest partition function over directions:

    \[ I(X) = \frac{\min_c Z(c)}{\max_c Z(c)}, \qquad Z(c) = \sum_i \exp(c^\top x_i) \]

    The directions c are the eigenvectors of \(X^\top X\) and their negatives, because their sign is
    arbitrary. The value lies between 0 and 1, where 1 means that no direction is preferred. It depends on the
    lengths of the rows: compare embeddings of one scale, such as normalized ones.

    Reference: Mu & Viswanath, All-but-the-Top, ICLR 2018; Arora et al., A Latent Variable Model Approach to
    PMI-based Word Embeddings, 2016.
    """
    require_finite(x, "embeddings")
    x = x.double()
    projected = x @ torch.linalg.eigh(x.T @ x).eigenvectors
    log_z = torch.cat([projected.logsumexp(0), (-projected).logsumexp(0)])
    return float((log_z.min() - log_z.max()).exp())

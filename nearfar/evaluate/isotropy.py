"""Do embeddings point everywhere, or into a narrow cone? Vectors of language models do the latter (anisotropy).

`spectrum` and `effective_rank` in `nearfar.evaluate.geometry` say how many directions are used; here is how evenly.
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
    """`mean_cosine` and `std_cosine`: of all pairs of different rows, 0 and 1/sqrt(d) if isotropic; `partition`: see
    `partition_isotropy`, 1 if isotropic; `first_share`: of the variance along the first principal direction, 1/d if isotropic."""

    mean_cosine: float
    std_cosine: float
    partition_isotropy: float
    first_component_share: float
    effective_rank: float


def measure_isotropy(x: Float[Tensor, "n d"]) -> Isotropy:
    """All measures of a set of embeddings."""
    x = check_features(x, "embeddings")
    mean, std = cosine_moments(x)
    variance = singular_values(x - x.mean(0)).square()
    share = float(variance[0] / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny))
    return Isotropy(mean, std, partition_isotropy(x), share, effective_rank(x))


def cosine_moments(x: Float[Tensor, "n d"]) -> tuple[float, float]:
    r"""Mean and standard deviation of the cosine over all pairs of different rows, exactly and without forming them:

    \[ \sum_{i \ne j} u_i^\top u_j = \lVert \textstyle\sum_i u_i \rVert^2 - \sum_i \lVert u_i \rVert^2, \qquad
       \sum_{i \ne j} (u_i^\top u_j)^2 = \lVert U^\top U \rVert_F^2 - \sum_i \lVert u_i \rVert^4 \]

    with unit rows \(u_i\) (a zero row stays zero). What is otherwise estimated from random pairs.

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
    r"""\[ I(X) = \frac{\min_c Z(c)}{\max_c Z(c)}, \qquad Z(c) = \sum_i \exp(c^\top x_i) \]

    over the eigenvectors c of \(X^\top X\) and their opposites (neither sign is the right one). Between 0 and 1, where 1
    means that no direction is preferred. Depends on the rows' lengths: compare embeddings of one scale, such as normalised ones.

    Reference: Mu & Viswanath, All-but-the-Top, ICLR 2018; Arora et al., A Latent Variable Model Approach to PMI-based
    Word Embeddings, 2016.
    """
    require_finite(x, "embeddings")
    x = x.double()
    projected = x @ torch.linalg.eigh(x.T @ x).eigenvectors
    log_z = torch.cat([projected.logsumexp(0), (-projected).logsumexp(0)])
    return float((log_z.min() - log_z.max()).exp())

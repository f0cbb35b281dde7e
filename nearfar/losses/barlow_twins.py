"""Barlow Twins: features agree between views and are uncorrelated with each other."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows_of_same_shape
from nearfar.scores import Number


def barlow_twins(
    z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], redundancy_weight: Number = 5e-3, eps: Number = 1e-5
) -> Float[Tensor, ""]:
    r"""Compute the weighted squared distance of the cross-correlation to the identity.

    \[ \mathcal L = \sum_i (1 - C_{ii})^2 + \lambda \sum_i \sum_{j \ne i} C_{ij}^2, \qquad
       C_{ij} = \frac1n \sum_b \hat z^0_{bi}\, \hat z^1_{bj} \]

    Here \(\hat z\) is centered over the batch and divided by \(\sqrt{\text{variance} + \epsilon}\). Without
    centering, C would be a matrix of cosines, and every feature with a nonzero mean would look redundant.

    Args:
        z0: Embeddings of the first view.
        z1: Embeddings of the second view.
        redundancy_weight: Weight of the off-diagonal terms, \(\lambda\).
        eps: Constant added to the variance, \(\epsilon\).

    Requirements: more than one row. With a single row every feature is constant, C = 0, and the loss is d.

    Relations: the loss has no negatives and no asymmetry. It uses a d x d table where InfoNCE uses an n x n
    table.

    Reference: Zbontar et al., Barlow Twins: Self-Supervised Learning via Redundancy Reduction, ICML 2021.
    """
    check_rows_of_same_shape(z0=z0, z1=z1)
    correlation = _standardize(z0, eps).T @ _standardize(z1, eps) / len(z0)
    diagonal = correlation.diagonal()
    invariance = (1 - diagonal).square().sum()
    redundancy = correlation.square().sum() - diagonal.square().sum()
    return invariance + redundancy_weight * redundancy


def _standardize(z: Float[Tensor, "n d"], eps: Number) -> Float[Tensor, "n d"]:
    z = z.float() if z.dtype in (torch.bfloat16, torch.float16) else z
    centred = z - z.mean(0)
    return centred * (centred.square().mean(0) + eps).rsqrt()

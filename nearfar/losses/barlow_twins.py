"""Barlow Twins: features should agree between views and not with each other."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows_of_same_shape
from nearfar.scores import Number


def barlow_twins(
    z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], redundancy_weight: Number = 5e-3, eps: Number = 1e-5
) -> Float[Tensor, ""]:
    r"""The cross-correlation of the two views' features should be the identity:

    \[ \mathcal L = \sum_i (1 - C_{ii})^2 + \lambda \sum_i \sum_{j \ne i} C_{ij}^2, \qquad
       C_{ij} = \frac1n \sum_b \hat z^0_{bi}\, \hat z^1_{bj} \]

    where \(\hat z\) is centred over the batch and divided by \(\sqrt{\text{variance} + \epsilon}\). Without the
    centring C would be a matrix of cosines, in which any feature with a mean looks redundant.

    Requirements: more than one row; of a single one every feature is constant, C = 0 and the loss is d.

    Relations: no negatives and no asymmetry; a d x d table where InfoNCE has an n x n one.

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

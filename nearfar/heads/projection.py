"""Projection and prediction heads: map representations to the space in which the loss compares them."""

from __future__ import annotations

import itertools
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

HeadNorm = Literal["batch", "layer", "none"]


def mlp(*dims: int, norm: HeadNorm = "none", last_norm: bool = False) -> nn.Sequential:
    """Build linear layers of the given widths with ReLU between them.

    `mlp(512, 2048, 128)` has two layers. Two widths give one linear map.

    Args:
        dims: widths of the input, the hidden layers and the output.
        norm: norm before each ReLU. "batch" uses statistics of all rows that are embedded together, "layer"
            of one row, "none" adds no norm.
        last_norm: add a norm after the last layer too, without scale and shift, as in the code of SimCLR and
            Barlow Twins.
    """
    layers: list[nn.Module] = []
    for i, (inward, outward) in enumerate(itertools.pairwise(dims)):
        last = i == len(dims) - 2
        normed = norm != "none" and (not last or last_norm)
        layers.append(nn.Linear(inward, outward, bias=not normed))
        if normed:
            layers.append(_norm(norm, outward, affine=not last))
        if not last:
            layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def _norm(norm: HeadNorm, width: int, affine: bool) -> nn.Module:
    return nn.BatchNorm1d(width, affine=affine) if norm == "batch" else nn.LayerNorm(width, elementwise_affine=affine)


class Normalize(nn.Module):
    """Layer that scales rows to unit length. A zero row stays zero."""

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return F.normalize(x, dim=1)

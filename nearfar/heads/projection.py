"""Projection and prediction heads: from a representation to where the loss compares it."""

from __future__ import annotations

import itertools
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

HeadNorm = Literal["batch", "layer", "none"]


def mlp(*dims: int, norm: HeadNorm = "none", last_norm: bool = False) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them: `mlp(512, 2048, 128)`; two widths: one linear map.

    `norm` stands before each ReLU and, with `last_norm`, after the last layer, there without scale and shift (as
    in SimCLR's and Barlow Twins' code). "batch" uses statistics of the rows embedded together; "layer" of one row.
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
    """Rows to unit length; a zero row stays zero."""

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return F.normalize(x, dim=1)

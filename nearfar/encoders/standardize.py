"""First layer of every image encoder: converts bytes or floats to standardized channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn


class Standardize(nn.Module):
    """Layer that computes `(x - mean) / std` for each channel.

    Bytes are first divided by 255. A gray image gets one channel for each mean. The layer is saved with the
    weights, so that users of an encoder need not know the statistics of its training data.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(list(mean)).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(list(std)).clamp_min(1e-3).view(-1, 1, 1))

    def forward(self, x: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n k h w"]:
        if not x.is_floating_point():
            x = x.float() / 255
        return (x - self.mean) / self.std

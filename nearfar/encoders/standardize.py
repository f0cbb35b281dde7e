"""The first layer of every image encoder: bytes or floats in, standardised channels out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn


class Standardize(nn.Module):
    """`(x - mean) / std` by channel; bytes are first divided by 255. Of grey images every mean makes a channel.

    Being a layer it travels with the weights: whoever loads an encoder needs not know what it was trained on.
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

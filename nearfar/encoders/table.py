"""Encoders of rows of numbers: networks of fully connected layers after a layer that standardizes.

    mlp                      4 hidden layers of 256 units with ReLU, as in SCARF (Bahri et al. 2022)
    mlp-LAYERSxWIDTH         other numbers of layers and units, such as mlp-2x128

The encoders take rows as they are in the data and return the output of the last hidden layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import Sizes
from nearfar.encoders.family import EncoderBuilder, EncoderFamily

MLP_LAYERS, MLP_WIDTH = 4, 256
"""Hidden layers and units of the encoder `mlp`."""


class StandardizeColumns(nn.Module):
    """Layer that computes `(x - mean) / std` for each column.

    Constant columns are only shifted. The layer is saved with the weights, so that users of an encoder need
    not know the statistics of its training data.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        scale = torch.tensor(list(std), dtype=torch.float32)
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32))
        self.register_buffer("std", torch.where(scale > 0, scale, torch.ones_like(scale)))

    def forward(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
        return (x - self.mean) / self.std


class RowEncoder(nn.Module):
    """Fully connected layers with ReLU on standardized rows. `dim` is the width of the output."""

    def __init__(self, sizes: Sizes, layers: int, width: int):
        super().__init__()
        self.dim = width
        self.standardize = StandardizeColumns(sizes["mean"], sizes["std"])
        widths = [sizes["features"], *[width] * layers]
        parts = [part for inward, outward in itertools.pairwise(widths) for part in (nn.Linear(inward, outward), nn.ReLU())]
        self.body = nn.Sequential(*parts)

    def forward(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        return self.body(self.standardize(x))


ROW_ENCODERS: dict[str, EncoderBuilder] = {
    "mlp": lambda sizes: RowEncoder(sizes, MLP_LAYERS, MLP_WIDTH),
    "mlp-LAYERSxWIDTH": RowEncoder,
}
TABLE_FAMILY = EncoderFamily(
    modality_name="rows of numbers",
    size_field="features",
    builders=ROW_ENCODERS,
    choose_default=lambda sizes: "mlp",
    example_spec="mlp-2x128",
)

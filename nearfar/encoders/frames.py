"""Encoders of game frames: strided convolutions with a linear layer on top.

The output of the third layer is the map of local features.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nearfar.core import Sizes, UsageError
from nearfar.encoders.family import EncoderBuilder, EncoderFamily

_SHAPES = {
    "nature": (((32, 8, 4), (64, 4, 2), (128, 4, 2)), (64, 3, 1), 256),
    "nature-small": (((16, 4, 2), (32, 3, 2), (32, 3, 1)), (32, 3, 1), 64),
}
"""Layers by encoder name: (channels, window, stride) of the layers up to the map and of the layer after it,
and the width of the global feature."""
NATURE_MIN_SIDE_PIXELS = 80
"""Minimum side length for the encoder "nature". Frames with a shorter side count as small."""


class NatureEncoder(nn.Module):
    """Convolutional encoder of game frames (Mnih et al. 2015).

    `encoder(x)` is the global feature (n, dim). `encoder.encode_with_map(x)` also returns the map that the
    global feature is computed from, (n, positions, width).

    "nature" is the network of Mnih et al. 2015 for 210 x 160 pixels, as in ST-DIM: 11 x 8 positions of 128
    channels, and 256 features.
    """

    def __init__(self, spec: str, sizes: Sizes):
        super().__init__()
        local, above, self.dim = _SHAPES[spec]
        channels, height, width = (sizes[name] for name in ("channels", "height", "width"))
        layers: list[nn.Module] = []
        for outward, window, stride in local:
            layers += [nn.Conv2d(channels, outward, window, stride), nn.ReLU()]
            channels, height, width = outward, (height - window) // stride + 1, (width - window) // stride + 1
        outward, window, _ = above
        if min(height, width) < window:
            raise UsageError(
                f"--encoder {spec}: frames of {sizes['height']} x {sizes['width']} pixels are too small for it; use nature-small"
            )
        self.width, self.map_size = channels, (height, width)
        self.local = nn.Sequential(*layers)
        flat = outward * (height - window + 1) * (width - window + 1)
        self.above = nn.Sequential(nn.Conv2d(channels, outward, window), nn.ReLU(), nn.Flatten(), nn.Linear(flat, self.dim))
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def encode_with_map(self, x: Shaped[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n p w2"]]:
        """Return the global feature (n, dim) and the map (n, positions, width)."""
        if not x.is_floating_point():
            x = x.to(self.local[0].weight.dtype) / 255  # type: ignore[operator, arg-type]
        maps = self.local(x)
        return self.above(maps), maps.flatten(2).transpose(1, 2)

    def forward(self, x: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return self.encode_with_map(x)[0]


FRAME_ENCODERS: dict[str, EncoderBuilder] = {name: partial(NatureEncoder, name) for name in _SHAPES}
FRAME_FAMILY = EncoderFamily(
    modality_name="frames",
    size_field="height",
    builders=FRAME_ENCODERS,
    choose_default=lambda sizes: "nature" if min(sizes["height"], sizes["width"]) >= NATURE_MIN_SIDE_PIXELS else "nature-small",
)

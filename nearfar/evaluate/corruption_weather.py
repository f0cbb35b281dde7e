"""Weather corruptions of images: snow, frost, fog and brightness."""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.corruption_blur import blur_along_line, zoom_to_center
from nearfar.evaluate.corruption_levels import Corruption, UnitImages
from nearfar.similarity.color import compute_luma
from nearfar.similarity.image_op import Slots, as_image_shape, scale_to_range

FROST_TINT = (0.87, 1.02, 1.11)
"""Factors of red, green and blue: ice is slightly blue."""


def add_snow(
    x: UnitImages, slots: Slots, rng_key: RandomKey,
    mean: float, std: float, zoom: float, threshold: float, radius: int, blur_std: float, kept: float,
) -> UnitImages:  # fmt: skip
    """Add falling snow and whiten the image.

    Flakes are the values of a normal image above a threshold, magnified and blurred along a steep line. They
    are added twice, once turned by 180 degrees.
    """
    layer = mean + std * rng_key("snow").normal(slots, 1, *x.shape[2:]).double()
    layer = zoom_to_center(layer, zoom)
    layer = torch.where(layer < threshold, 0, layer).clamp(0, 1)
    degrees = scale_to_range(-135, -45, rng_key("snow angle").uniform(slots).double())
    layer = blur_along_line(layer, degrees, radius, blur_std)
    whitened = torch.maximum(x, compute_luma(x) * 1.5 + 0.5)
    return torch.lerp(whitened, x, kept) + layer + layer.flip(2, 3)


def add_frost(x: UnitImages, slots: Slots, rng_key: RandomKey, kept: float, ice: float) -> UnitImages:
    """Cover the image with ice crystals.

    The authors cut the crystals from photographs. These are generated, see `draw_frost`.
    """
    return kept * x + ice * draw_frost(slots, rng_key, x.shape)


def draw_frost(slots: Slots, rng_key: RandomKey, shape: torch.Size) -> UnitImages:
    """Draw one texture of ice for each image.

    The texture is ours: a fractal cloud with needles in three random directions. Its mean, contrast, gradients
    and color are about those of the authors' photographs.
    """
    _, channels, height, width = shape
    light = as_image_shape(scale_to_range(0.3, 0.8, rng_key("frost light").uniform(slots).double()))
    cloud = draw_plasma(slots, rng_key("frost"), max(height, width), 2.0)[:, None, :height, :width]
    ice = light + 0.2 * (cloud - 0.5)
    length = max(4, min(height, width) // 12)
    for i in range(3):
        seeds = rng_key("frost needles", i).uniform(slots, 1, height, width) < 0.2 / length
        degrees = scale_to_range(0, 360, rng_key("frost angle", i).uniform(slots).double())
        ice = ice + 0.15 * length * blur_along_line(seeds.double(), degrees, length, length)
    if channels == 3:
        ice = ice * torch.tensor(FROST_TINT, dtype=ice.dtype, device=ice.device).view(1, 3, 1, 1)
    return ice.clamp(0, 1)


def add_fog(x: UnitImages, slots: Slots, rng_key: RandomKey, strength: float, decay: float) -> UnitImages:
    """Add a fractal cloud and scale the result back to the brightest value of the image."""
    height, width = x.shape[2:]
    cloud = draw_plasma(slots, rng_key("fog"), max(height, width), decay)[:, None, :height, :width]
    brightest = x.amax((1, 2, 3), keepdim=True)
    return (x + strength * cloud) * brightest / (brightest + strength)


def raise_brightness(x: UnitImages, slots: Slots, rng_key: RandomKey, amount: float) -> UnitImages:
    """Add to the value in HSV, with the same hue and saturation.

    All channels are multiplied by the ratio of new to old value. Black becomes gray.
    """
    value = x.amax(1, keepdim=True)
    raised = (value + amount).clamp(max=1)
    return torch.where(value > 0, x * (raised / value), raised)


def draw_plasma(slots: Slots, rng_key: RandomKey, size: int, decay: float) -> Float64[Tensor, "n s s"]:
    """Draw fractal clouds with the diamond-square algorithm, between 0 and 1.

    The clouds wrap around at the edges.

    Args:
        slots: Sample ids (n,).
        rng_key: Random key.
        size: Least side in pixels. The side is the next power of two.
        decay: Factor by which the noise shrinks from one level of detail to the next.
    """
    side = 1 << (size - 1).bit_length()
    cloud = torch.zeros(len(slots), side, side, dtype=torch.float64, device=slots.device)
    step, amplitude = side, 100.0
    while step >= 2:
        half = step // 2
        noise = 2 * rng_key("plasma", step).uniform(slots, 3, side // step, side // step).double() - 1
        centers, across, down = (amplitude**2 * noise).unbind(1)
        corners = cloud[:, ::step, ::step]
        cloud[:, half::step, half::step] = _add_next(_add_next(corners, -1, 1), -1, 2) / 4 + centers
        middles = cloud[:, half::step, half::step]
        cloud[:, ::step, half::step] = (_add_next(middles, 1, 1) + _add_next(corners, -1, 2)) / 4 + across
        cloud[:, half::step, ::step] = (_add_next(middles, 1, 2) + _add_next(corners, -1, 1)) / 4 + down
        step, amplitude = half, amplitude / decay
    lowest = cloud.amin((1, 2), keepdim=True)
    return (cloud - lowest) / (cloud.amax((1, 2), keepdim=True) - lowest)


def _add_next(grid: Float64[Tensor, "n s s"], shift: int, axis: int) -> Float64[Tensor, "n s s"]:
    """Add to each point of a periodic grid its neighbor along an axis."""
    return grid + grid.roll(shift, axis)


WEATHER = {
    "snow": Corruption(
        add_snow,
        small=(
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        large=(
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "frost": Corruption(
        add_frost,
        small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    "fog": Corruption(
        add_fog,
        small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": Corruption(
        raise_brightness,
        small=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        large=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    ),
}
"""Weather corruptions by name."""

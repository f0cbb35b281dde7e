"""Severity levels of image corruptions, and the conversion between uint8 and unit values.

Corruptions compute in float64. Rounding errors then never decide a uint8 value, so a result does not depend
on the batch or the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

UnitImages = Float64[Tensor, "n c h w"]
"""Images with values in [0, 1]."""
LARGEST_SMALL_SIDE = 64
"""Largest shorter side in pixels for which the levels of CIFAR-10-C are used."""
HALF_UP = 0.5 + 1e-6
"""Offset before rounding down. Exact halves are rounded up in spite of rounding errors."""


@dataclass(frozen=True)
class Corruption:
    """Corruption of images with five severity levels for two image sizes.

    Attributes:
        apply: Function (images, slots, random key, *parameters). The result may leave [0, 1].
        small: Parameters of severities 1 to 5 that the authors publish for CIFAR-10-C.
        large: Parameters of severities 1 to 5 that the authors publish for ImageNet-C.
    """

    apply: Callable[..., UnitImages]
    small: tuple[tuple[float, ...], ...]
    large: tuple[tuple[float, ...], ...]

    def get_level(self, severity: int, image_size: tuple[int, int]) -> tuple[float, ...]:
        """Return the parameters of a severity for images of (height, width)."""
        levels = self.small if min(image_size) <= LARGEST_SMALL_SIDE else self.large
        return levels[severity - 1]


def as_unit_images(images: UInt8[Tensor, "n c h w"]) -> UnitImages:
    """Convert uint8 images to values in [0, 1]."""
    return images.double() / 255


def round_to_bytes(x: UnitImages) -> UInt8[Tensor, "n c h w"]:
    """Clip values to [0, 1] and round them to uint8."""
    return (x.clamp(0, 1) * 255 + HALF_UP).floor().to(torch.uint8)

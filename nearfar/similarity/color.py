"""Color filters: jitter, grayscale, solarize.

Images that do not have 3 channels have no hue and no saturation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity.image_op import Filter, ImageTensor, RowValues, Slots, as_image_shape, scale_to_range

LUMA_WEIGHTS = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in perceived brightness (ITU-R BT.601, as in Pillow)."""


@dataclass(frozen=True)
class ColorJitter(Filter):
    """Color jitter (Howard 2013).

    It changes brightness, contrast, saturation and hue, in this order. For strength b, factors are uniform in
    [max(0, 1 - b), 1 + b]. Hue shifts are uniform in [-hue, hue], in turns of the color circle. The semantics
    are those of Pillow's ImageEnhance, clipped to [0, 1] after each step. The order is fixed, whereas
    torchvision draws a new order for every image.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if min(self.brightness, self.contrast, self.saturation) < 0 or not 0 <= self.hue <= 0.5:
            raise UsageError(f"ColorJitter: strengths must not be negative and hue must be at most 0.5 turns, got {self}")

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        u = rng_key("strength").uniform(slots, 4)
        coloured = x.shape[1] == 3
        if self.brightness:
            x = adjust_brightness(x, scale_to_factor(self.brightness, u[:, 0]))
        if self.contrast:
            x = adjust_contrast(x, scale_to_factor(self.contrast, u[:, 1]))
        if self.saturation and coloured:
            x = adjust_saturation(x, scale_to_factor(self.saturation, u[:, 2]))
        if self.hue and coloured:
            x = shift_hue(x, scale_to_range(-self.hue, self.hue, u[:, 3]))
        return x


@dataclass(frozen=True)
class Grayscale(Filter):
    """Random grayscale: all channels become the luma."""

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return compute_luma(x).expand_as(x)


@dataclass(frozen=True)
class Solarize(Filter):
    """Solarization (BYOL, Barlow Twins).

    Values from `threshold` on are inverted, as in an overexposed film.
    """

    threshold: float = 0.5

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return torch.where(x < self.threshold, x, 1 - x)


def scale_to_factor(strength: float, uniform: RowValues) -> RowValues:
    """Scale numbers in [0, 1) to [max(0, 1 - strength), 1 + strength)."""
    return scale_to_range(max(0.0, 1 - strength), 1 + strength, uniform)


def compute_luma(x: ImageTensor) -> Float[Tensor, "n c1 h w"]:
    """Compute the brightness of color images as one channel.

    Other images are unchanged.
    """
    if x.shape[1] != 3:
        return x
    red, green, blue = LUMA_WEIGHTS
    return (x[:, 0] * red).add_(x[:, 1], alpha=green).add_(x[:, 2], alpha=blue)[:, None]


def adjust_brightness(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Scale brightness: factor 0 gives black, 1 gives the image itself."""
    return (x * as_image_shape(factor)).clamp_(0, 1)


def adjust_contrast(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Mix each image with its mean brightness."""
    mean = compute_luma(x.mean(dim=(2, 3), keepdim=True)).mean(dim=1, keepdim=True)
    return (x * as_image_shape(factor)).add_(mean * as_image_shape(1 - factor)).clamp_(0, 1)


def adjust_saturation(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Mix each image with its gray version."""
    return torch.lerp(compute_luma(x), x, as_image_shape(factor)).clamp_(0, 1)


def shift_hue(x: Float[Tensor, "n 3 h w"], turns: RowValues) -> Float[Tensor, "n 3 h w"]:
    """Shift the hue in HSV and keep value and saturation.

    Turns are in [-0.5, 0.5]. A color is low + chroma * wheel(hue), where low is its smallest channel, chroma
    is the largest minus the smallest channel, and wheel is the fully saturated color of that hue. The
    channels of the wheel are one trapezoid, a third of a turn apart.
    """
    red, green, blue = x.unbind(1)
    low, high = x.amin(1), x.amax(1)
    chroma = high - low
    hue = (red - green).add_(chroma, alpha=4)  # in sixths of a turn, times chroma, if blue is the largest
    # lerp with weights 0 and 1 selects like torch.where, in half the time on a CPU
    hue.lerp_((blue - red).add_(chroma, alpha=2), (high == green).float())
    hue.lerp_(green - blue, (high == red).float())
    hue = hue.div_(6 * chroma.clamp_min(1e-12)).add_(turns[:, None, None])

    def channel(offset: float) -> Tensor:
        trapezium = (hue + offset).frac_().mul_(6).sub_(3).abs_().sub_(1).clamp_(0, 1)
        return trapezium.mul_(chroma).add_(low)

    return torch.stack((channel(1.0), channel(5 / 3), channel(4 / 3)), dim=1)

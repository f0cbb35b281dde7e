"""The colour filters: jitter, colour drop, solarise. Images of other than 3 channels have no hue and no saturation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity.image_op import Filter, ImageTensor, RowValues, Slots, as_image_shape, scale_to_range

LUMA_WEIGHTS = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the brightness that the eye sees (ITU-R BT.601, as in Pillow)."""


@dataclass(frozen=True)
class ColorJitter(Filter):
    """Colour jitter: change brightness, contrast, saturation and hue, in this order (Howard 2013).

    Factors are uniform in [max(0, 1 - b), 1 + b], shifts of the hue uniform in [-hue, hue], in turns of the colour
    circle. Semantics are those of Pillow's ImageEnhance, clipped to [0, 1] after each step. The order is fixed,
    where torchvision draws a new one for every image.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if min(self.brightness, self.contrast, self.saturation) < 0 or not 0 <= self.hue <= 0.5:
            raise UsageError(f"Jitter: strengths are not negative and hue is at most 0.5 turns, got {self}")

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
    """Colour drop: all channels become the luma."""

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return compute_luma(x).expand_as(x)


@dataclass(frozen=True)
class Solarize(Filter):
    """Values from `threshold` on are inverted, as in an overexposed film (BYOL, Barlow Twins)."""

    threshold: float = 0.5

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return torch.where(x < self.threshold, x, 1 - x)


def scale_to_factor(strength: float, uniform: RowValues) -> RowValues:
    """Numbers of [0, 1) moved to [max(0, 1 - strength), 1 + strength)."""
    return scale_to_range(max(0.0, 1 - strength), 1 + strength, uniform)


def compute_luma(x: ImageTensor) -> Float[Tensor, "n c1 h w"]:
    """The brightness of coloured images as one channel; others are as they are."""
    if x.shape[1] != 3:
        return x
    red, green, blue = LUMA_WEIGHTS
    return (x[:, 0] * red).add_(x[:, 1], alpha=green).add_(x[:, 2], alpha=blue)[:, None]


def adjust_brightness(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Blend with black: 0 is black, 1 the image itself."""
    return (x * as_image_shape(factor)).clamp_(0, 1)


def adjust_contrast(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Blend with the mean brightness of the image."""
    mean = compute_luma(x.mean(dim=(2, 3), keepdim=True)).mean(dim=1, keepdim=True)
    return (x * as_image_shape(factor)).add_(mean * as_image_shape(1 - factor)).clamp_(0, 1)


def adjust_saturation(x: ImageTensor, factor: RowValues) -> ImageTensor:
    """Blend with the grey image."""
    return torch.lerp(compute_luma(x), x, as_image_shape(factor)).clamp_(0, 1)


def shift_hue(x: Float[Tensor, "n 3 h w"], turns: RowValues) -> Float[Tensor, "n 3 h w"]:
    """Turn the colour circle of HSV, value and saturation kept; turns in [-0.5, 0.5].

    A colour is low + chroma * wheel(hue), where low is its smallest channel, chroma the largest minus the smallest,
    and wheel the fully saturated colour of that hue. The wheel's channels are one trapezium, a third of a turn apart.
    """
    red, green, blue = x.unbind(1)
    low, high = x.amin(1), x.amax(1)
    chroma = high - low
    hue = (red - green).add_(chroma, alpha=4)  # in sixths of a turn, times chroma, if blue is the highest
    # lerp with weights 0 and 1 selects like torch.where, at half its time on a CPU
    hue.lerp_((blue - red).add_(chroma, alpha=2), (high == green).float())
    hue.lerp_(green - blue, (high == red).float())
    hue = hue.div_(6 * chroma.clamp_min(1e-12)).add_(turns[:, None, None])

    def channel(offset: float) -> Tensor:
        trapezium = (hue + offset).frac_().mul_(6).sub_(3).abs_().sub_(1).clamp_(0, 1)
        return trapezium.mul_(chroma).add_(low)

    return torch.stack((channel(1.0), channel(5 / 3), channel(4 / 3)), dim=1)

"""The filters on neighbourhoods and single pixels: Gaussian blur, Sobel, Gaussian noise, cutout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nearfar.core import Key, UsageError
from nearfar.similarity.image_op import Filter, Images, PerRow, Resized, Slots, between, check_range, per_image


@dataclass(frozen=True)
class Blur(Filter):
    """Gaussian blur; the standard deviation in pixels is uniform in `sigma`, each row has its own.

    The kernel is an odd number of pixels, `width` times the shorter side of the image or a little more, at least 3:
    a tenth in SimCLR and BYOL, that is 23 pixels of 224 and 3 of 32. Edges are mirrored.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    width: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "sigma", lowest=1e-3)
        if not 0 < self.width < 1:
            raise UsageError(f"Blur: width is a share of the image's side, above 0 and below 1, got {self.width}")

    def apply(self, x: Images, slots: Slots, key: Key) -> Images:
        radius = max(1, int(self.width * min(x.shape[2:]) / 2))
        sigma = between(*self.sigma, key("sigma").uniform(slots))
        kernel = gaussian(sigma, radius)
        padded = F.pad(x, (radius, radius, radius, radius), mode="reflect")
        return slide(slide(padded, kernel, dim=3), kernel, dim=2).clamp_(0, 1)


@dataclass(frozen=True)
class Sobel(Filter):
    """Edges: the length of each channel's gradient, so scaled that an upright step from 0 to 1 gives 1."""

    def apply(self, x: Images, slots: Slots, key: Key) -> Images:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
        across = smoothed(slope(padded, dim=3), dim=2)
        down = smoothed(slope(padded, dim=2), dim=3)
        return torch.hypot(across, down).clamp_(0, 1)


@dataclass(frozen=True)
class Noise(Filter):
    """Independent normal noise of standard deviation `std` on every value, clipped to [0, 1]."""

    std: float = 0.05

    def apply(self, x: Images, slots: Slots, key: Key) -> Images:
        return torch.add(x, key("noise").normal(slots, *x.shape[1:]), alpha=self.std).clamp_(0, 1)


@dataclass(frozen=True)
class Cutout(Filter):
    """Paint over a square of `side` times the image's shorter side (DeVries and Taylor 2017).

    Its centre is uniform over the pixels, so that it may reach beyond the edges.
    """

    side: float = 0.5
    fill: float = 0.0

    def apply(self, x: Images, slots: Slots, key: Key) -> Images:
        height, width = x.shape[2:]
        side = round(self.side * min(height, width))
        top = key("row").integers(slots, height) - side // 2
        left = key("column").integers(slots, width) - side // 2
        rows, columns = inside(top, side, height), inside(left, side, width)
        return x.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], self.fill)


def gaussian(sigma: PerRow, radius: int) -> Float[Tensor, "n taps"]:
    """Kernels exp(-t^2 / 2 sigma^2), t from -radius to radius, with sum 1."""
    t = torch.arange(-radius, radius + 1, device=sigma.device, dtype=sigma.dtype)
    return torch.softmax(-0.5 * (t / sigma[:, None]).square(), dim=1)


def slide(x: Images, kernel: Float[Tensor, "n taps"], dim: int) -> Resized:
    """Correlate along one axis, each row of the batch with its own kernel; the axis shrinks by taps - 1.

    A sum of shifted images: with so few taps faster than a convolution with n groups.
    """
    length = x.shape[dim] - kernel.shape[1] + 1
    out = x.narrow(dim, 0, length) * per_image(kernel[:, 0])
    for tap in range(1, kernel.shape[1]):
        out.addcmul_(x.narrow(dim, tap, length), per_image(kernel[:, tap]))
    return out


def slope(x: Images, dim: int) -> Resized:
    """Next neighbour minus last one."""
    inner = x.shape[dim] - 2
    return x.narrow(dim, 2, inner) - x.narrow(dim, 0, inner)


def smoothed(x: Images, dim: int) -> Resized:
    """Mean of a value and its two neighbours, weighted 1, 2, 1."""
    inner = x.shape[dim] - 2
    return (x.narrow(dim, 0, inner) + 2 * x.narrow(dim, 1, inner) + x.narrow(dim, 2, inner)) / 4


def inside(start: Tensor, length: int, size: int) -> Tensor:
    """(n, size): which of `size` positions lie in [start, start + length)."""
    offset = torch.arange(size, device=start.device) - start[:, None]
    return (offset >= 0) & (offset < length)

"""The filters on neighbourhoods and single pixels: Gaussian blur, Sobel, Gaussian noise, cutout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity.image_op import (
    Filter,
    ImageTensor,
    ResizedImageTensor,
    RowValues,
    Slots,
    as_image_shape,
    check_range,
    scale_to_range,
)


@dataclass(frozen=True)
class GaussianBlur(Filter):
    """Gaussian blur; the standard deviation in pixels is uniform in `sigma`, each row has its own.

    The kernel is an odd number of pixels, `width` times the shorter side of the image or a little more, at least 3:
    a tenth in SimCLR and BYOL, that is 23 pixels of 224 and 3 of 32. Edges are mirrored.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    kernel_share: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "sigma", lowest=1e-3)
        if not 0 < self.kernel_share < 1:
            raise UsageError(f"Blur: width is a share of the image's side, above 0 and below 1, got {self.kernel_share}")

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        radius = max(1, int(self.kernel_share * min(x.shape[2:]) / 2))
        sigma = scale_to_range(*self.sigma, rng_key("sigma").uniform(slots))
        kernel = build_gaussian_kernel(sigma, radius)
        padded = F.pad(x, (radius, radius, radius, radius), mode="reflect")
        return correlate(correlate(padded, kernel, dim=3), kernel, dim=2).clamp_(0, 1)


@dataclass(frozen=True)
class SobelEdges(Filter):
    """Edges: the length of each channel's gradient, so scaled that an upright step from 0 to 1 gives 1."""

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
        across = smooth(compute_difference(padded, dim=3), dim=2)
        down = smooth(compute_difference(padded, dim=2), dim=3)
        return torch.hypot(across, down).clamp_(0, 1)


@dataclass(frozen=True)
class GaussianNoise(Filter):
    """Independent normal noise of standard deviation `std` on every value, clipped to [0, 1]."""

    std: float = 0.05

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return torch.add(x, rng_key("noise").normal(slots, *x.shape[1:]), alpha=self.std).clamp_(0, 1)


@dataclass(frozen=True)
class Cutout(Filter):
    """Paint over a square of `side` times the image's shorter side (DeVries and Taylor 2017).

    Its centre is uniform over the pixels, so that it may reach beyond the edges.
    """

    side_share: float = 0.5
    fill: float = 0.0

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        height, width = x.shape[2:]
        side = round(self.side_share * min(height, width))
        top = rng_key("row").integers(slots, height) - side // 2
        left = rng_key("column").integers(slots, width) - side // 2
        rows, columns = mark_interval(top, side, height), mark_interval(left, side, width)
        return x.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], self.fill)


def build_gaussian_kernel(sigma: RowValues, radius: int) -> Float[Tensor, "n taps"]:
    """Kernels exp(-t^2 / 2 sigma^2), t from -radius to radius, with sum 1."""
    t = torch.arange(-radius, radius + 1, device=sigma.device, dtype=sigma.dtype)
    return torch.softmax(-0.5 * (t / sigma[:, None]).square(), dim=1)


def correlate(x: ImageTensor, kernel: Float[Tensor, "n taps"], dim: int) -> ResizedImageTensor:
    """Correlate along one axis, each row of the batch with its own kernel; the axis shrinks by taps - 1.

    A sum of shifted images: with so few taps faster than a convolution with n groups.
    """
    length = x.shape[dim] - kernel.shape[1] + 1
    out = x.narrow(dim, 0, length) * as_image_shape(kernel[:, 0])
    for tap in range(1, kernel.shape[1]):
        out.addcmul_(x.narrow(dim, tap, length), as_image_shape(kernel[:, tap]))
    return out


def compute_difference(x: ImageTensor, dim: int) -> ResizedImageTensor:
    """Next neighbour minus last one."""
    inner = x.shape[dim] - 2
    return x.narrow(dim, 2, inner) - x.narrow(dim, 0, inner)


def smooth(x: ImageTensor, dim: int) -> ResizedImageTensor:
    """Mean of a value and its two neighbours, weighted 1, 2, 1."""
    inner = x.shape[dim] - 2
    return (x.narrow(dim, 0, inner) + 2 * x.narrow(dim, 1, inner) + x.narrow(dim, 2, inner)) / 4


def mark_interval(start: Tensor, length: int, size: int) -> Tensor:
    """(n, size): which of `size` positions lie in [start, start + length)."""
    offset = torch.arange(size, device=start.device) - start[:, None]
    return (offset >= 0) & (offset < length)

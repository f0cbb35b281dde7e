"""Filters on neighborhoods and single pixels: Gaussian blur, Sobel, Gaussian noise, cutout."""

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
    """Gaussian blur with a random standard deviation for each row.

    The standard deviation in pixels is uniform in `sigma`. The kernel size is `kernel_share` times the
    shorter side of the image or slightly more. It is an odd number of pixels, at least 3. The default of a
    tenth is that of SimCLR and BYOL, for example 23 pixels of 224 and 3 of 32. Edges are mirrored.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the standard deviation in pixels."""
    kernel_share: float = 0.1
    """Kernel size as a share of the shorter side of the image."""

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "sigma", lowest=1e-3)
        if not 0 < self.kernel_share < 1:
            raise UsageError(f"GaussianBlur: kernel_share must be a share of the image side, above 0 and below 1, got {self.kernel_share}")

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        radius = max(1, int(self.kernel_share * min(x.shape[2:]) / 2))
        sigma = scale_to_range(*self.sigma, rng_key("sigma").uniform(slots))
        kernel = build_gaussian_kernel(sigma, radius)
        padded = F.pad(x, (radius, radius, radius, radius), mode="reflect")
        return correlate(correlate(padded, kernel, dim=3), kernel, dim=2).clamp_(0, 1)


@dataclass(frozen=True)
class SobelEdges(Filter):
    """Edge filter: the length of the gradient of each channel.

    The scale is chosen so that a vertical step from 0 to 1 gives 1.
    """

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
        across = smooth(compute_difference(padded, dim=3), dim=2)
        down = smooth(compute_difference(padded, dim=2), dim=3)
        return torch.hypot(across, down).clamp_(0, 1)


@dataclass(frozen=True)
class GaussianNoise(Filter):
    """Independent normal noise on every value.

    Its standard deviation is `std`, and the result is clipped to [0, 1].
    """

    std: float = 0.05

    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        return torch.add(x, rng_key("noise").normal(slots, *x.shape[1:]), alpha=self.std).clamp_(0, 1)


@dataclass(frozen=True)
class Cutout(Filter):
    """Square mask at a random place (DeVries and Taylor 2017).

    Its side is `side_share` times the shorter side of the image. Its center is uniform over the pixels, so it
    may extend beyond the edges.
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
    """Build normalized Gaussian kernels.

    The values are exp(-t^2 / 2 sigma^2), t from -radius to radius, divided by their sum.
    """
    t = torch.arange(-radius, radius + 1, device=sigma.device, dtype=sigma.dtype)
    return torch.softmax(-0.5 * (t / sigma[:, None]).square(), dim=1)


def correlate(x: ImageTensor, kernel: Float[Tensor, "n taps"], dim: int) -> ResizedImageTensor:
    """Correlate along one axis, with one kernel per row.

    The axis shrinks by taps - 1. The result is a sum of shifted images. With so few taps, this is faster than
    a convolution with n groups.
    """
    length = x.shape[dim] - kernel.shape[1] + 1
    out = x.narrow(dim, 0, length) * as_image_shape(kernel[:, 0])
    for tap in range(1, kernel.shape[1]):
        out.addcmul_(x.narrow(dim, tap, length), as_image_shape(kernel[:, tap]))
    return out


def compute_difference(x: ImageTensor, dim: int) -> ResizedImageTensor:
    """Compute the next neighbor minus the previous one along an axis."""
    inner = x.shape[dim] - 2
    return x.narrow(dim, 2, inner) - x.narrow(dim, 0, inner)


def smooth(x: ImageTensor, dim: int) -> ResizedImageTensor:
    """Smooth along one axis with weights 1, 2, 1."""
    inner = x.shape[dim] - 2
    return (x.narrow(dim, 0, inner) + 2 * x.narrow(dim, 1, inner) + x.narrow(dim, 2, inner)) / 4


def mark_interval(start: Tensor, length: int, size: int) -> Tensor:
    """Mark positions in [start, start + length) as a mask `(n, size)`."""
    offset = torch.arange(size, device=start.device) - start[:, None]
    return (offset >= 0) & (offset < length)

"""Blur corruptions of images: defocus, glass, motion and zoom blur."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float64, Int64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.corruption_levels import Corruption, UnitImages
from nearfar.similarity.image_op import Slots, scale_to_range
from nearfar.similarity.texture import build_gaussian_kernel, correlate

SMALLEST_WEIGHT = 1e-12
"""Weights of a kernel below this value are left out."""


def blur_defocus(x: UnitImages, slots: Slots, rng_key: RandomKey, radius: float, edge_std: float) -> UnitImages:
    """Blur with a disk, as a lens out of focus does. Edges are mirrored."""
    kernel = build_disk(radius, edge_std)
    reach = len(kernel) // 2
    height, width = x.shape[2:]
    padded = F.pad(x, (reach, reach, reach, reach), mode="reflect")
    out = torch.zeros_like(x)
    for row, column in (kernel > SMALLEST_WEIGHT).nonzero().tolist():
        shifted = padded[:, :, row : row + height, column : column + width]
        out.add_(shifted, alpha=float(kernel[row, column]))
    return out


@functools.lru_cache(maxsize=16)
def build_disk(radius: float, edge_std: float) -> Float64[Tensor, "k k"]:
    """Build the kernel of a disk with a smooth edge.

    The disk is divided by its sum, then blurred by a Gaussian of 3 or 5 pixels, as in the authors' script.
    Zero rows and columns at the edges are left out.
    """
    grid_radius = max(8, math.ceil(radius))
    reach = 1 if radius <= 8 else 2
    t = torch.arange(-grid_radius, grid_radius + 1, dtype=torch.float64)
    disk = (t.square() + t[:, None].square() <= radius**2).double()
    edge = build_gaussian_kernel(torch.tensor([edge_std], dtype=torch.float64), reach)
    padded = F.pad((disk / disk.sum())[None, None], (reach, reach, reach, reach), mode="reflect")
    kernel = correlate(correlate(padded, edge, dim=3), edge, dim=2)[0, 0]
    used = int((kernel.amax(0) > SMALLEST_WEIGHT).sum()) // 2
    middle = slice(grid_radius - used, grid_radius + used + 1)
    return kernel[middle, middle]


def blur_glass(x: UnitImages, slots: Slots, rng_key: RandomKey, std: float, reach: int, rounds: int) -> UnitImages:
    """Blur as frosted glass does: displace pixels locally, between two Gaussian blurs."""
    x = blur_gaussian(x, std)
    height, width = x.shape[2:]
    for i in range(rounds):
        offsets = rng_key("glass blur", i).integers(slots, 2 * reach, 2, height, width) - reach
        source = trace_displaced_pixels(offsets, reach)
        x = x.flatten(2).gather(2, source[:, None].expand(-1, x.shape[1], -1)).view_as(x)
    return blur_gaussian(x, std)


def trace_displaced_pixels(offsets: Int64[Tensor, "n 2 h w"], reach: int) -> Int64[Tensor, "n p"]:
    """Return the pixel that each pixel's value comes from.

    The authors' script visits the inner pixels from the last to the first. Each takes the current value of the
    pixel at its random offset. (The script means to swap the two, but its swap of numpy views leaves the other
    pixel unchanged.) A pixel visited earlier passes its own source on. Pointer jumping follows all these
    chains at once.

    Args:
        offsets: Offsets (down, right) of each pixel, from -reach to reach - 1.
        reach: Distance of the inner pixels from the edges.
    """
    height, width = offsets.shape[2:]
    pixels = height * width
    rows = torch.arange(height, device=offsets.device)[:, None]
    columns = torch.arange(width, device=offsets.device)
    inner_rows, inner_columns = (rows > reach) & (rows <= height - reach), (columns > reach) & (columns <= width - reach)
    inner = (inner_rows & inner_columns).flatten()
    own = (rows * width + columns).flatten()
    target = torch.where(inner, own + (offsets[:, 0] * width + offsets[:, 1]).flatten(1), own)
    # An entry below `pixels` points to a visited pixel, whose source is still to be found.
    visited = (target > own) & inner[target]
    source = torch.where(visited, target, target + pixels)
    while bool((source < pixels).any()):
        source = torch.where(source < pixels, source.gather(1, source % pixels), source)
    return source - pixels


def blur_motion(x: UnitImages, slots: Slots, rng_key: RandomKey, radius: int, std: float) -> UnitImages:
    """Blur along a random line within 45 degrees of the horizontal."""
    degrees = scale_to_range(-45, 45, rng_key("motion blur").uniform(slots).double())
    return blur_along_line(x, degrees, radius, std)


def blur_along_line(x: UnitImages, degrees: Float64[Tensor, " n"], radius: int, std: float) -> UnitImages:
    """Blur each image to one side along a line, as ImageMagick's motion blur does.

    The kernel is half a Gaussian of 2 radius + 1 pixels. Each step along the line is rounded to a whole pixel.
    Edges are repeated.
    """
    height, width = x.shape[2:]
    steps = torch.arange(2 * radius + 1, dtype=torch.float64, device=x.device)
    weights = torch.softmax(-0.5 * (steps / std).square(), dim=0).tolist()
    angle = torch.deg2rad(degrees)[:, None]
    down = torch.ceil(steps * angle.sin() - 0.5).long()  # (n, steps)
    right = torch.ceil(steps * angle.cos() - 0.5).long()
    rows = (down[..., None] + torch.arange(height, device=x.device)).clamp(0, height - 1)
    columns = (right[..., None] + torch.arange(width, device=x.device)).clamp(0, width - 1)
    flat, out = x.flatten(2), torch.zeros_like(x).flatten(2)
    for i, weight in enumerate(weights):
        source = (rows[:, i, :, None] * width + columns[:, i, None, :]).flatten(1)
        out.add_(flat.gather(2, source[:, None].expand_as(flat)), alpha=weight)
    return out.view_as(x)


def blur_zoom(x: UnitImages, slots: Slots, rng_key: RandomKey, largest: float, step: float) -> UnitImages:
    """Average the image with its zoomed versions, as a camera that moves forward does."""
    factors = np.arange(1, largest, step).tolist()
    out = x.clone()
    for factor in factors:
        out += zoom_to_center(x, factor)
    return out / (len(factors) + 1)


def zoom_to_center(x: UnitImages, factor: float) -> UnitImages:
    """Magnify the center of images to the whole image, bilinearly."""
    height, width = x.shape[2:]
    rows, columns = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    crop = x[:, :, top : top + rows, left : left + columns]
    size = round(rows * factor), round(columns * factor)
    zoomed = F.interpolate(crop, size=size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return zoomed[:, :, top : top + height, left : left + width]


def blur_gaussian(x: UnitImages, std: float) -> UnitImages:
    """Blur with a Gaussian of 4 standard deviations to each side. Edges are repeated."""
    height, width = x.shape[2:]
    rows = build_smoothing_matrix(height, std, 4, mirrored=False, device=x.device)
    columns = build_smoothing_matrix(width, std, 4, mirrored=False, device=x.device)
    return rows @ x @ columns.T


@functools.lru_cache(maxsize=64)
def build_smoothing_matrix(size: int, std: float, truncate: float, *, mirrored: bool, device: torch.device) -> Float64[Tensor, "s s"]:
    """Build the matrix of a one-dimensional Gaussian filter.

    Args:
        size: Length of the axis.
        std: Standard deviation in pixels.
        truncate: Reach of the kernel in standard deviations.
        mirrored: If True, values beyond the edges are mirrored (b a | a b), else repeated (a a | a b).
        device: Device of the matrix.
    """
    reach = int(truncate * std + 0.5)
    if reach == 0:
        return torch.eye(size, dtype=torch.float64, device=device)
    kernel = build_gaussian_kernel(torch.tensor([std], dtype=torch.float64), reach)
    index = torch.arange(size)[:, None] + torch.arange(-reach, reach + 1)
    if mirrored:
        index = index % (2 * size)
        index = torch.minimum(index, 2 * size - 1 - index)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, index.clamp(0, size - 1), kernel.expand(size, -1)).to(device)


BLUR = {
    "defocus_blur": Corruption(
        blur_defocus,
        small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "glass_blur": Corruption(
        blur_glass,
        small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    "motion_blur": Corruption(
        blur_motion,
        small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom_blur": Corruption(
        blur_zoom,
        small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
}
"""Blur corruptions by name."""

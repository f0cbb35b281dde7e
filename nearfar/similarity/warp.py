"""Geometric operations, merged into one interpolation.

A geometric operation maps each point of its result to a point of its input. A sequence of operations is a
chain of such maps, from the last to the first, and the image is sampled once at the end. This is sharper and
faster than sampling after each operation.

Points are normalized: -1 and 1 are the outer edges of the first and last pixel, along x and along y. They are
two tensors that broadcast to (n, h, w). They stay a row and a column until an operation mixes x and y.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.similarity.image_op import ImageOp, ImageTensor, ResizedImageTensor, Slots, check_probability, draw_row_mask

ImageSize = tuple[int, int]
"""Height and width of an image."""
Points = tuple[Float[Tensor, "#n #h #w"], Float[Tensor, "#n #h #w"]]
"""x and y of the points to sample."""


@dataclass(frozen=True, kw_only=True)
class GeometricOp(ImageOp):
    """Operation that moves pixels.

    Used alone, it samples the image. Inside `Compose` it merges with adjacent geometric operations.
    """

    prob: float = 1.0
    """Probability that a row is changed."""
    padding_mode: Literal["border", "reflection", "zeros"] = "border"
    """Values beyond the edges of the image."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        """Map points of the result to points of the input.

        Args:
            points: normalized points of the result.
            slots: `(n,)` slots that name the random numbers.
            rng_key: random key.
            image_size: height and width of the input.
        """

    def get_output_size(self, image_size: ImageSize) -> ImageSize:
        """Return the output size for an input size."""
        return image_size

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        return warp(x, slots, [(self, rng_key)])


def warp(x: ImageTensor, slots: Slots, geometric_ops: Sequence[tuple[GeometricOp, RandomKey]]) -> ResizedImageTensor:
    """Apply geometric operations in order with one bilinear interpolation.

    Args:
        x: `(n, c, h, w)` images.
        slots: `(n,)` slots that name the random numbers.
        geometric_ops: operations, each with its own random key. The first determines the padding mode.
    """
    frame, stages = (x.shape[2], x.shape[3]), []
    for motion, rng_key in geometric_ops:
        stages.append((motion, rng_key, frame))
        frame = motion.get_output_size(frame)
    points = compute_pixel_centers(frame, x.device)
    for motion, rng_key, before in reversed(stages):
        points = map_chosen_rows(motion, points, slots, rng_key, before)
    grid = as_grid(points).expand(len(x), *frame, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode=geometric_ops[0][0].padding_mode, align_corners=False)


def map_chosen_rows(geometric_op: GeometricOp, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
    """Apply `map_to_input` to the rows that the operation's probability selects."""
    x, y = geometric_op.map_to_input(points, slots, rng_key, image_size)
    if geometric_op.prob == 1:
        return x, y
    chosen = draw_row_mask(geometric_op.prob, slots, rng_key)[:, None, None]
    return torch.where(chosen, x, points[0]), torch.where(chosen, y, points[1])


def compute_pixel_centers(image_size: ImageSize, device: torch.device) -> Points:
    """Compute the pixel centers of an image.

    x is one row, y is one column.
    """
    height, width = image_size
    x = (2 * torch.arange(width, device=device) + 1) / width - 1
    y = (2 * torch.arange(height, device=device) + 1) / height - 1
    return x[None, None, :], y[None, :, None]


def as_grid(points: Points) -> Float[Tensor, "n h w 2"]:
    """Stack points into the grid format of `grid_sample`."""
    return torch.stack(torch.broadcast_tensors(*points), dim=-1)

"""Moving pixels: any number of motions, one interpolation.

A motion says, for a point of its result, where to look in its input. Motions that follow each other are
chained as such maps, from the last to the first, and the image is sampled once at the end: sharper than
resampling after each motion, and faster.

Points are normalised: -1 and 1 are the outer edges of the first and last pixel, along x and along y. They are
kept as two tensors that broadcast to (n, h, w); as long as no motion mixes x and y they stay a row and a column.
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
"""x and y of the points to look at."""


@dataclass(frozen=True, kw_only=True)
class GeometricOp(ImageOp):
    """An operation that moves pixels. By itself it samples the image; inside `Compose` it merges with its neighbours."""

    prob: float = 1.0
    """Probability that a row is moved at all."""
    padding_mode: Literal["border", "reflection", "zeros"] = "border"
    """What is seen beyond the edges of the image."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        """For points of the result, where to look in the input, whose size is `frame`."""

    def get_output_size(self, image_size: ImageSize) -> ImageSize:
        """Size of the result, given that of the input."""
        return image_size

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        return warp(x, slots, [(self, rng_key)])


def warp(x: ImageTensor, slots: Slots, geometric_ops: Sequence[tuple[GeometricOp, RandomKey]]) -> ResizedImageTensor:
    """The images after all the motions, in order, by one bilinear interpolation. Each motion brings its own key."""
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
    """`motion.pull`, in the rows that its probability chooses."""
    x, y = geometric_op.map_to_input(points, slots, rng_key, image_size)
    if geometric_op.prob == 1:
        return x, y
    chosen = draw_row_mask(geometric_op.prob, slots, rng_key)[:, None, None]
    return torch.where(chosen, x, points[0]), torch.where(chosen, y, points[1])


def compute_pixel_centers(image_size: ImageSize, device: torch.device) -> Points:
    """The points of an image's own pixels: x as one row, y as one column."""
    height, width = image_size
    x = (2 * torch.arange(width, device=device) + 1) / width - 1
    y = (2 * torch.arange(height, device=device) + 1) / height - 1
    return x[None, None, :], y[None, :, None]


def as_grid(points: Points) -> Float[Tensor, "n h w 2"]:
    """The points as `grid_sample` wants them."""
    return torch.stack(torch.broadcast_tensors(*points), dim=-1)

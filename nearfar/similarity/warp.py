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

from nearfar.core import Key
from nearfar.similarity.image_op import Images, Op, Resized, Slots, check_probability, choose

Frame = tuple[int, int]
"""Height and width of an image."""
Points = tuple[Float[Tensor, "#n #h #w"], Float[Tensor, "#n #h #w"]]
"""x and y of the points to look at."""


@dataclass(frozen=True, kw_only=True)
class Motion(Op):
    """An operation that moves pixels. By itself it samples the image; inside `Compose` it merges with its neighbours."""

    p: float = 1.0
    """Probability that a row is moved at all."""
    outside: Literal["border", "reflection", "zeros"] = "border"
    """What is seen beyond the edges of the image."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        """For points of the result, where to look in the input, whose size is `frame`."""

    def resized(self, frame: Frame) -> Frame:
        """Size of the result, given that of the input."""
        return frame

    def __call__(self, x: Images, slots: Slots, key: Key) -> Resized:
        return warp(x, slots, [(self, key)])


def warp(x: Images, slots: Slots, motions: Sequence[tuple[Motion, Key]]) -> Resized:
    """The images after all the motions, in order, by one bilinear interpolation. Each motion brings its own key."""
    frame, stages = (x.shape[2], x.shape[3]), []
    for motion, key in motions:
        stages.append((motion, key, frame))
        frame = motion.resized(frame)
    points = pixel_centres(frame, x.device)
    for motion, key, before in reversed(stages):
        points = pull_chosen(motion, points, slots, key, before)
    grid = as_grid(points).expand(len(x), *frame, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode=motions[0][0].outside, align_corners=False)


def pull_chosen(motion: Motion, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
    """`motion.pull`, in the rows that its probability chooses."""
    x, y = motion.pull(points, slots, key, frame)
    if motion.p == 1:
        return x, y
    chosen = choose(motion.p, slots, key)[:, None, None]
    return torch.where(chosen, x, points[0]), torch.where(chosen, y, points[1])


def pixel_centres(frame: Frame, device: torch.device) -> Points:
    """The points of an image's own pixels: x as one row, y as one column."""
    height, width = frame
    x = (2 * torch.arange(width, device=device) + 1) / width - 1
    y = (2 * torch.arange(height, device=device) + 1) / height - 1
    return x[None, None, :], y[None, :, None]


def as_grid(points: Points) -> Float[Tensor, "n h w 2"]:
    """The points as `grid_sample` wants them."""
    return torch.stack(torch.broadcast_tensors(*points), dim=-1)

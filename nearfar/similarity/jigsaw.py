"""Jigsaw: image tiles laid out in another order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity.image_op import ImageOp, ImageTensor, ResizedImageTensor, Slots


@dataclass(frozen=True)
class Jigsaw(ImageOp):
    """Tiles of an image in random order.

    Each tile comes from a random place in its grid cell. The image has `grid` x `grid` cells. Tiles are `gap`
    pixels smaller than their cells, so that edges do not reveal which tiles were neighbors. The result is
    `grid * gap` pixels smaller than the image. Pixels at the right and the bottom that belong to no whole
    cell become black. `split_tiles` splits the result into its tiles again.

    Reference: Noroozi & Favaro 2016.
    """

    grid: int = 3
    gap: int = 0

    def __post_init__(self):
        if self.grid < 1 or self.gap < 0:
            raise UsageError(f"Jigsaw: grid must be at least 1 and gap at least 0, got {self.grid} and {self.gap}")

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        height, width = (side // self.grid - self.gap for side in x.shape[2:])
        if min(height, width) < 1:
            raise UsageError(
                f"Jigsaw: an image of {tuple(x.shape[2:])} pixels has no {self.grid} x {self.grid} cells larger than {self.gap}"
            )
        count = self.grid**2
        order = rng_key("order").uniform(slots, count).argsort(dim=1, stable=True)
        place = rng_key("place").integers(slots, self.gap + 1, count, 2)
        top = order // self.grid * (height + self.gap) + place[..., 0]
        left = order % self.grid * (width + self.gap) + place[..., 1]
        rows = top[:, :, None] + torch.arange(height, device=x.device)
        columns = left[:, :, None] + torch.arange(width, device=x.device)
        row = torch.arange(len(x), device=x.device)[:, None, None, None]
        cut = x.permute(0, 2, 3, 1)[row, rows[:, :, :, None], columns[:, :, None, :]]
        beyond = (0, x.shape[3] % self.grid, 0, x.shape[2] % self.grid)
        return F.pad(join_tiles(cut.permute(0, 1, 4, 2, 3), self.grid), beyond)


def split_tiles(x: ImageTensor, grid: int) -> Float[Tensor, "n t c p q"]:
    """Split images into grid x grid equal tiles, row by row."""
    height, width = x.shape[2] // grid, x.shape[3] // grid
    parts = x[:, :, : grid * height, : grid * width].unflatten(3, (grid, width)).unflatten(2, (grid, height))
    return parts.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def join_tiles(tiles: Float[Tensor, "n t c p q"], grid: int) -> ImageTensor:
    """Join tiles to one image, row by row.

    This is the inverse of `split_tiles`.
    """
    return tiles.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3).contiguous()

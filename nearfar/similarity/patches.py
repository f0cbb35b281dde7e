"""Overlapping patches of an image that predict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views
from nearfar.similarity.augment import to_float_images
from nearfar.similarity.image_op import ImageOp, Slots


@dataclass(frozen=True)
class PatchGrid(Similarity):
    """Grid of jittered patches of an augmented image.

    The output is {"v0": (n, grid, grid, c, p, p)}. Adjacent patches overlap by half. Jitter takes a window
    from a random place of each patch and puts it on the middle of a black patch, so that edges do not reveal
    which patches were neighbors (van den Oord et al. 2018: 60 of 64 pixels). The height and width of the
    window are a sixteenth smaller than those of the patch, by at least one pixel. Patches of less than 8
    pixels are unchanged.
    """

    pipeline: ImageOp
    grid: int = 7

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        return {"image": data.read(rows.ids)}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        image = to_float_images(raw["image"])
        slots = torch.as_tensor(rows.slots, device=image.device)
        return {"v0": jitter_patches(split_patches(self.pipeline(image, slots, rng_key("view", 0)), self.grid), slots, rng_key("patch"))}


def split_patches(x: Shaped[Tensor, "n c h w"], grid: int) -> Shaped[Tensor, "n g g c p p"]:
    """Split images into grid x grid overlapping patches.

    Each patch is twice as large as the stride. An image of 256 pixels gives 7 x 7 patches of 64 pixels.

    Raises:
        UsageError: the image is too small for the grid.
    """
    step = min(x.shape[2:]) // (grid + 1)
    if step < 1:
        raise UsageError(
            f"--patches-per-side {grid}: an image of {tuple(x.shape[2:])} pixels has no {grid} x {grid} patches that overlap by half"
        )
    x = x[:, :, : (grid + 1) * step, : (grid + 1) * step]
    return x.unfold(2, 2 * step, step).unfold(3, 2 * step, step).permute(0, 2, 3, 1, 4, 5)


def jitter_patches(x: Float[Tensor, "n g g c p p"], slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n g g c p p"]:
    """Move a random window of each patch to the middle of a black patch."""
    n, grid, _, _, side, _ = x.shape
    if side < 8:
        return x
    border = max(1, side // 16)
    place = rng_key("place").integers(slots, border + 1, grid, grid, 2)
    inner = torch.arange(side - border, device=x.device)
    rows, columns = (place[..., axis, None] + inner for axis in (0, 1))
    at = [torch.arange(count, device=x.device) for count in (n, grid, grid)]
    row, i, j = (index.view(*(-1 if axis == k else 1 for axis in range(5))) for k, index in enumerate(at))
    cut = x.permute(0, 1, 2, 4, 5, 3)[row, i, j, rows[..., :, None], columns[..., None, :]]
    before = border // 2
    return F.pad(cut.permute(0, 1, 2, 5, 3, 4), (before, border - before, before, border - before))

"""The parts of an image predict each other: a grid of overlapping patches."""

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
    """{"v0": (n, grid, grid, c, p, p)}: an augmented image, cut into patches that overlap by half, each of them jittered.

    Jitter: a window, a sixteenth of a patch smaller on each side and at least one pixel smaller in all, is taken from a random place of
    the patch and laid onto the middle of a black one, so that edges do not tell which patches were neighbours (van den Oord et al. 2018:
    60 of 64 pixels). Patches of less than 8 pixels stay as they are.
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
    """grid x grid patches, each twice as large as the step from one to the next: 7 x 7 of 64 pixels in an image of 256."""
    step = min(x.shape[2:]) // (grid + 1)
    if step < 1:
        raise UsageError(
            f"--patches-per-side {grid}: an image of {tuple(x.shape[2:])} pixels has no {grid} x {grid} patches that overlap by half"
        )
    x = x[:, :, : (grid + 1) * step, : (grid + 1) * step]
    return x.unfold(2, 2 * step, step).unfold(3, 2 * step, step).permute(0, 2, 3, 1, 4, 5)


def jitter_patches(x: Float[Tensor, "n g g c p p"], slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n g g c p p"]:
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

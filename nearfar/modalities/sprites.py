"""Sprite sheets: many small images in one PNG inside the page.

Style sheets cut the images out and enlarge them without blur.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

DISPLAY_PIXELS = 56
"""Display size of images in pixels. Images are enlarged by the whole factor that comes nearest to it."""
MAX_STORED_PIXELS = 64
"""Largest side of stored images in pixels."""


@dataclass(frozen=True)
class SampleCell:
    """Cell of a sheet as data: an image, a text, or a sound below its image.

    A template renders it.
    """

    position: str = ""
    """CSS position of the image in the PNG of the sheet."""
    text: str | None = None
    text_width: str = ""
    """CSS width of the text. Default: the width of the sheet's cells."""
    sound_uri: str = ""


@dataclass(frozen=True)
class SpriteSheet:
    """Sprite sheet of images.

    `style` belongs to the element around the cells and holds the PNG. `get_cell(i)` is the place of image i.
    """

    uri: str
    columns: int
    rows: int
    width: int
    height: int

    @property
    def style(self) -> str:
        """Return the style attribute of an element that encloses cells."""
        size = f"{self.columns * self.width}px {self.rows * self.height}px"
        return f"--sheet:url({self.uri});--sheet-size:{size};--w:{self.width}px;--h:{self.height}px"

    def get_cell(self, index: int) -> SampleCell:
        """Return the cell of one image."""
        row, column = divmod(index, self.columns)
        return SampleCell(f"{-column * self.width}px {-row * self.height}px")


@dataclass(frozen=True)
class TextSheet:
    """Counterpart of `SpriteSheet` for texts."""

    texts: list[str]
    style = "--w:22ch"

    def get_cell(self, index: int) -> SampleCell:
        """Return the cell of one text."""
        return SampleCell(text=self.texts[index])


def build_sprite_sheet(images: Float[Tensor, "n c h w"] | Float[np.ndarray, "n c h w"]) -> SpriteSheet:
    """Build a sheet of images with values in [0, 1].

    One channel is shown as gray. If there are more than three channels, the first three are shown.
    """
    pixels = _downscale(_as_bytes(images))
    n, h, w = pixels.shape[:3]
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    canvas = np.zeros((rows * h, columns * w, *pixels.shape[3:]), np.uint8)
    for i, image in enumerate(pixels):
        row, column = divmod(i, columns)
        canvas[row * h : (row + 1) * h, column * w : (column + 1) * w] = image
    enlarged = max(1, round(DISPLAY_PIXELS / max(h, w)))
    return SpriteSheet(encode_png_uri(canvas), columns, rows, w * enlarged, h * enlarged)


def encode_png_uri(pixels: np.ndarray) -> str:
    """Encode pixels as a PNG file in a data URI."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _as_bytes(images: Tensor | np.ndarray) -> np.ndarray:
    """Convert images to bytes: (n, h, w) gray or (n, h, w, 3)."""
    x = torch.as_tensor(images).detach().cpu().float()
    x = (x.nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return x[:, 0] if x.shape[1] < 3 else x[:, :3].transpose(0, 2, 3, 1)


def _downscale(pixels: np.ndarray) -> np.ndarray:
    h, w = pixels.shape[1:3]
    if max(h, w) <= MAX_STORED_PIXELS:
        return pixels
    shrink = MAX_STORED_PIXELS / max(h, w)
    size = (max(1, round(w * shrink)), max(1, round(h * shrink)))
    return np.stack([np.asarray(Image.fromarray(p).resize(size, Image.Resampling.LANCZOS)) for p in pixels])

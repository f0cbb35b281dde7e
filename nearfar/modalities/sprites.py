"""Many small images as one PNG inside the page, cut out by style sheets and enlarged without blur."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

DISPLAY_PIXELS = 56
"""Images are shown at the whole multiple of their size that comes nearest to this many pixels …"""
MAX_STORED_PIXELS = 64
"""… and stored at no more than this many a side."""


@dataclass(frozen=True)
class SpriteSheet:
    """A sprite sheet: `opening` goes around the cells and carries the PNG, `cell(i)` shows image i."""

    uri: str
    columns: int
    rows: int
    width: int
    height: int

    @property
    def style(self) -> str:
        """Value of a style attribute for an element that encloses cells."""
        size = f"{self.columns * self.width}px {self.rows * self.height}px"
        return f"--sheet:url({self.uri});--sheet-size:{size};--w:{self.width}px;--h:{self.height}px"

    def render_cell(self, index: int, title: str, css_class: str = "") -> str:
        row, column = divmod(index, self.columns)
        at = f"background-position:{-column * self.width}px {-row * self.height}px"
        return f'<i class="px {css_class}" role="img" aria-label="{escape(title)}" title="{escape(title)}" style="{at}"></i>'


@dataclass(frozen=True)
class TextSheet:
    """The counterpart of `Sheet` for samples that are texts."""

    texts: list[str]
    style = "--w:22ch"

    def render_cell(self, index: int, title: str) -> str:
        return f'<q class="words" title="{escape(title)}">{escape(self.texts[index])}</q>'


def build_sprite_sheet(images: Float[Tensor, "n c h w"] | Float[np.ndarray, "n c h w"]) -> SpriteSheet:
    """Images with values in [0, 1]; one channel is shown grey, of more than three the first three."""
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
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _as_bytes(images: Tensor | np.ndarray) -> np.ndarray:
    """(n h w) grey or (n h w 3)."""
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

"""Windows cut out of an image file: for views that begin with a crop.

A view scaled from the file itself is sharper than one scaled from a picture that was brought to the size of a view
before, and it sees what lies outside the central square. It costs no more: the file is decoded once for all its
views, and only what lies in the windows is scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from nearfar.data.images.decode import convert_channels, open_image, read_upright_size, rotate_upright

CropBoxes = Float[np.ndarray, "v 4"]
"""Left, top, right and bottom, as shares of the upright image's width and height."""


def decode_crops(path: Path, channels: int, boxes: CropBoxes, sizes: Sequence[int]) -> list[UInt8[Tensor, "c _s _s"]]:
    """One file, upright and flat, seen through each window, view i at `sizes[i]` pixels a side."""
    with open_image(path) as image:
        set_jpeg_scale(image, boxes, sizes)
        pixels = torch.from_numpy(np.array(convert_channels(rotate_upright(image), channels)))
    pixels = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    return [resize_crop(pixels, window, size) for window, size in zip(boxes, sizes, strict=True)]


def set_jpeg_scale(image: Image.Image, boxes: CropBoxes, sizes: Sequence[int]) -> None:
    """Let a JPEG be decoded at the smallest of 1/8, 1/4, 1/2 that leaves every window twice the pixels it is scaled to.

    At half of that margin the decoder's own scaling would be seen: 35 instead of 41 dB on photographs.
    """
    height, width = read_upright_size(image)
    sides = (boxes[:, 2:] - boxes[:, :2]) * (width, height)
    spare = int((sides / (2 * np.asarray(sizes)[:, None])).min())
    if spare >= 2:
        image.draft(None, (image.width // spare, image.height // spare))


def resize_crop(pixels: UInt8[Tensor, "c h w"], box: Float[np.ndarray, "4"], size: int) -> UInt8[Tensor, "c s s"]:
    """What the window shows, its edges at the nearest whole pixels, by bilinear interpolation with a low-pass filter where it shrinks.

    torch's filter gives what Pillow's does, in a quarter of the time.
    """
    height, width = pixels.shape[1:]
    left, top, right, bottom = box.tolist()
    seen = pixels[None, :, to_pixel_slice(top, bottom, height), to_pixel_slice(left, right, width)]
    return F.interpolate(seen, (size, size), mode="bilinear", antialias=True)[0]


def to_pixel_slice(low: float, high: float, length: int) -> slice:
    """The whole pixels from `low` to `high`, at least one, within the image."""
    start = min(max(round(low * length), 0), length - 1)
    return slice(start, min(max(round(high * length), start + 1), length))

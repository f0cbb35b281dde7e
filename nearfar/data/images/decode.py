"""Decoder of image files to square uint8 arrays, based on Pillow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import get_worker_info

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback

IMAGE_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
_BLOCK = 1024
_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition for each EXIF orientation.

Pillow's own `exif_transpose` also rewrites the EXIF block, and fails on damaged blocks.
"""

ItemT = TypeVar("ItemT")
_Result = TypeVar("_Result")


class BrokenImage(Exception):
    """Error for a file that Pillow cannot decode. Its text is the reason."""

    def to_usage_error(self, path: Path) -> UsageError:
        """Return a `UsageError` with the file, the reason and a remedy."""
        return UsageError(f"cannot read the image {path}: {self}. Repair or remove it, or leave such files out with --on-error skip")


@contextlib.contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """Open the file as a Pillow image without decoding its pixels.

    Every fault of the file becomes a `BrokenImage`.

    Only the supported formats are tried, regardless of the extension: some of Pillow's other readers start
    programs. Pillow's readers raise many kinds of exceptions on damaged bytes, so every exception except
    `MemoryError` is caught.
    """
    try:
        with Image.open(path, formats=_FORMATS) as image:
            yield image
    except MemoryError:
        raise
    except UnidentifiedImageError as e:
        reason = "the file is empty" if path.stat().st_size == 0 else "it is not a JPEG, PNG, WebP, BMP or GIF image"
        raise BrokenImage(reason) from e
    except Exception as e:
        raise BrokenImage(getattr(e, "strerror", None) or str(e) or type(e).__name__) from e


def is_gray(image: Image.Image) -> bool:
    """Return True if the mode of the image has one color channel.

    Such modes are black and white, and 8 or 16 bit gray, with or without alpha. Palettes count as color.
    """
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


def read_exif_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8, where 1 is upright."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # an unreadable EXIF block says nothing about the orientation, and the pixels are fine
        return 1
    return found if found in _TO_UPRIGHT else 1


def read_upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the height and width of the upright image, from its header.

    No pixels are decoded. A PNG may state its orientation after its pixels. The result is then the stored
    size.
    """
    width, height = image.size
    lying = "exif" in image.info and read_exif_orientation(image) >= 5
    return (width, height) if lying else (height, width)


def rotate_upright(image: Image.Image) -> Image.Image:
    """Turn the image upright, as its EXIF orientation says."""
    image.load()
    return image.transpose(_TO_UPRIGHT[turned]) if (turned := read_exif_orientation(image)) > 1 else image


def convert_channels(image: Image.Image, channels: int) -> Image.Image:
    """Convert the image to gray or RGB (1 or 3 channels).

    16 bit values lose their lower half. Transparent areas become white. Palettes and inks become colors.
    """
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def crop_and_resize(image: Image.Image, size: int) -> Image.Image:
    """Crop the largest central square and resize it to `size` pixels a side.

    The shorter side becomes `size`, and the rest is cropped.
    """
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)


def to_pixel_array(image: Image.Image) -> UInt8[np.ndarray, "c h w"]:
    """Return the pixels as a uint8 array of shape (c, h, w)."""
    values = np.asarray(image)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def decode_image(path: Path, channels: int, size: int) -> UInt8[np.ndarray, "c h w"]:
    """Decode one file to an upright square image without transparency.

    JPEGs are decoded at the smallest scale of 1/8, 1/4 and 1/2 that leaves twice the size.
    """
    with open_image(path) as image:
        image.draft(None, (2 * size, 2 * size))
        return to_pixel_array(crop_and_resize(convert_channels(rotate_upright(image), channels), size))


def resize_images(pixels: UInt8[Tensor, "n c h w"], size: int) -> UInt8[Tensor, "n c s s"]:
    """Resize images with the same crop and filter as files."""
    channels = pixels.shape[1]
    out = torch.empty(len(pixels), channels, size, size, dtype=torch.uint8)

    def resized(row: int) -> np.ndarray:
        values = pixels[row].numpy()
        return to_pixel_array(
            crop_and_resize(Image.fromarray(values[0] if channels == 1 else np.ascontiguousarray(values.transpose(1, 2, 0))), size)
        )

    for row, values in enumerate(map_in_threads(resized, range(len(pixels)))):
        out[row] = torch.from_numpy(values.copy())
    return out


def map_in_threads(
    function: Callable[[ItemT], _Result], items: Sequence[ItemT], progress: ProgressCallback | None = None
) -> Iterator[_Result]:
    """Apply a function to items in threads, in order.

    All cores are used, because Pillow decodes without holding Python's lock. The threads end with the
    iteration, so that processes forked later contain none. A worker process of a data loader already has its
    own core and uses no threads.

    Args:
        function: Function of one item.
        items: Items in the order of the results.
        progress: Called as progress(done, total) after each item.
    """
    alone = get_worker_info() is not None or len(items) < 2
    with contextlib.nullcontext() if alone else ThreadPoolExecutor(_cores()) as pool:
        spread = pool.map if pool else map
        for start in range(0, len(items), _BLOCK):  # in blocks: a million waiting tasks would fill the memory
            for done, result in enumerate(spread(function, items[start : start + _BLOCK]), start + 1):
                yield result
                if progress:
                    progress(done, len(items))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""From image files of any kind to square uint8 arrays, through Pillow."""

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
"""By EXIF's number of the orientation. Pillow's own `exif_transpose` also rewrites the EXIF block, and stumbles over damaged ones."""

ItemT = TypeVar("ItemT")
_Result = TypeVar("_Result")


class BrokenImage(Exception):
    """A file that Pillow cannot decode; the text is the reason."""

    def to_usage_error(self, path: Path) -> UsageError:
        return UsageError(f"cannot read the image {path}: {self}. Repair or remove it, or leave such files out with --on-error skip")


@contextlib.contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """The file as a Pillow image, its pixels not yet decoded. Whatever is wrong with it becomes a BrokenImage.

    Only the formats looked for are tried, whatever the extension says: some of Pillow's other readers start programs.
    Pillow's readers raise many kinds of exceptions on damaged bytes, hence the wide net.
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
    """Whether the mode has one colour channel: black and white, 8 or 16 bit grey, with or without alpha. Palettes count as colour."""
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")


def read_exif_orientation(image: Image.Image) -> int:
    """As EXIF numbers them, 1 to 8; 1 is upright."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # an unreadable EXIF block says nothing about the orientation, and the pixels are fine
        return 1
    return found if found in _TO_UPRIGHT else 1


def read_upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of the image once it is upright, from its header: nothing is decoded.

    A PNG may state its orientation behind its pixels; its frame is then the stored one.
    """
    width, height = image.size
    lying = "exif" in image.info and read_exif_orientation(image) >= 5
    return (width, height) if lying else (height, width)


def rotate_upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF orientation says."""
    image.load()
    return image.transpose(_TO_UPRIGHT[turned]) if (turned := read_exif_orientation(image)) > 1 else image


def convert_channels(image: Image.Image, channels: int) -> Image.Image:
    """Grey or RGB: 16 bits lose their lower half, transparency shows white, palettes and inks become colours."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def crop_and_resize(image: Image.Image, size: int) -> Image.Image:
    """The largest central square, scaled to `size` pixels a side (the shorter side becomes `size`, the rest is cropped)."""
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)


def to_pixel_array(image: Image.Image) -> UInt8[np.ndarray, "c h w"]:
    values = np.asarray(image)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def decode_image(path: Path, channels: int, size: int) -> UInt8[np.ndarray, "c h w"]:
    """One file, upright, flat and square. JPEGs are decoded at the smallest of 1/8, 1/4, 1/2 that leaves twice the size."""
    with open_image(path) as image:
        image.draft(None, (2 * size, 2 * size))
        return to_pixel_array(crop_and_resize(convert_channels(rotate_upright(image), channels), size))


def resize_images(pixels: UInt8[Tensor, "n c h w"], size: int) -> UInt8[Tensor, "n c s s"]:
    """Arrays go through the same crop and filter as files."""
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
    """`map`, in order, on all cores: Pillow decodes without holding Python's lock.

    The threads end with the iteration, so that processes forked later find none. A loader's worker process has its
    core already and works alone.
    """
    alone = get_worker_info() is not None or len(items) < 2
    with contextlib.nullcontext() if alone else ThreadPoolExecutor(_cores()) as pool:
        spread = pool.map if pool else map
        for start in range(0, len(items), _BLOCK):  # by blocks: a million waiting tasks would fill the memory
            for done, result in enumerate(spread(function, items[start : start + _BLOCK]), start + 1):
                yield result
                if progress:
                    progress(done, len(items))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

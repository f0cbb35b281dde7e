"""Conversion of in-memory images and labels.

The values are checked, brought to one layout and copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, Shaped, UInt8
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.images.dataset import Images
from nearfar.data.images.decode import resize_images

IMAGE_LAYOUTS = "(n, height, width), (n, height, width, channels) or (n, channels, height, width) with 1 or 3 channels"


@dataclass(frozen=True)
class ImageReadOptions:
    """Options of the image readers.

    Every reader gets these options in addition to the location of the data.
    """

    image_size: int | None = None
    on_error: str = "stop"
    progress: ProgressCallback | None = None


def as_pixels(images: np.ndarray | Tensor, description: str) -> UInt8[Tensor, "n c h w"]:
    """Return a uint8 copy of the images with the shape (n, c, h, w).

    Floats in [0, 1] are scaled to 0 … 255. The last of four axes holds the channels if its length is 1 or 3.

    Args:
        images: Images in one of the layouts of `IMAGE_LAYOUTS`.
        description: Name of the images in error messages.

    Raises:
        UsageError: The shape, the type or the range of the values is not that of images.
    """
    if isinstance(images, Tensor):
        images = images.detach().cpu()
        images = (images.float() if images.is_floating_point() else images).numpy()
    values = _as_bytes(images, description)
    if values.ndim == 3 and values.shape[2] in (1, 3):
        raise UsageError(
            f"{description} has the shape {images.shape}of a single image: pass image[None]; images must have the shape {IMAGE_LAYOUTS}"
        )
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[3] in (1, 3):
        values = values.transpose(0, 3, 1, 2)
    elif values.ndim != 4 or values.shape[1] not in (1, 3):
        raise UsageError(f"{description} has the shape {images.shape}; images must have the shape {IMAGE_LAYOUTS}")
    if values.size == 0:
        raise UsageError(f"{description} has the shape {images.shape}: it contains no pixels")
    return torch.from_numpy(np.array(values, order="C"))


def _as_bytes(values: np.ndarray, what: str) -> UInt8[np.ndarray, "..."]:
    if values.dtype == np.uint8:
        return values
    if not np.issubdtype(values.dtype, np.floating):
        raise UsageError(f"{what} holds {values.dtype}; images must be uint8 (0 to 255) or floats in [0, 1]")
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise UsageError(f"{what} holds floats from {values.min():g} to {values.max():g}; use floats in [0, 1] or uint8 (0 to 255)")
    return (values * 255).round().astype(np.uint8)


def as_label_array(labels: Any, n: int, description: str, sample_noun: str = "images") -> Shaped[np.ndarray, " n"]:
    """Return one label per sample: an array of n whole numbers or strings.

    A column of shape (n, 1) is accepted too. The label -1 is rejected: many datasets use it for an unknown
    label, and it would pass for a class. Two classes named -1 and 1 are accepted.

    Args:
        labels: Labels as an array, a tensor or a list.
        n: Number of samples.
        description: Name of the data in error messages.
        sample_noun: Plural noun for the samples in error messages.

    Raises:
        UsageError: The labels do not match the n samples, or have another type.
    """
    try:
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError as e:
        raise UsageError(f"{description} has labels that are not a plain list: {e}") from e
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UsageError(f"{description} has labels of the shape {values.shape}; expected one for each of its {sample_noun}: ({n},)")
    if len(values) != n:
        raise UsageError(f"{description} has {n:,} {sample_noun} but {len(values):,} labels")
    if values.dtype == object and any(all(isinstance(v, kind) for v in values) for kind in (str, (int, np.integer))):
        values = np.array(values.tolist())  # a column of a pandas table
    if values.dtype.kind not in "biuU":
        raise UsageError(f"{description} has labels of type {values.dtype}; labels must be whole numbers or texts")
    if values.dtype.kind == "i" and (values == -1).any() and len(np.unique(values)) > 2:
        raise UsageError(
            f"{description} has the label -1 among others: if it means unknown, leave those {sample_noun} out, "
            f"or give all {sample_noun} without labels; "
            "if it is a class, give it another name"
        )
    return values


def encode_labels(*parts: Shaped[np.ndarray, "..."] | None) -> tuple[list[Int64[np.ndarray, "..."] | None], tuple[str, ...]]:
    """Encode the labels of several parts as positions in one sorted class list.

    A part without labels (None) stays None.

    Returns:
        The positions 0 … k-1 of each part, and the names of the k classes.
    """
    given = [p for p in parts if p is not None]
    if not given:
        return [None for _ in parts], ()
    classes = np.unique(np.concatenate(given))
    coded = [None if p is None else np.searchsorted(classes, p.astype(classes.dtype)).astype(np.int64) for p in parts]
    return coded, tuple(str(c) for c in classes.tolist())


def build_images(
    pixels: UInt8[Tensor, "n c h w"],
    options: ImageReadOptions,
    source: str,
    labels: Int64[np.ndarray, " n"] | None = None,
    classes: tuple[str, ...] = (),
) -> Images:
    """Build a dataset of images from an array.

    The images keep their size, or are resized to `options.image_size`.

    Args:
        pixels: Images of shape (n, c, h, w).
        options: Options of the readers; `image_size` is used.
        source: Name of the data in error messages.
        labels: Positions in `classes`, shape (n,).
        classes: Names of the classes.

    Raises:
        UsageError: The images are not square and `image_size` is None.
    """
    height, width = pixels.shape[2:]
    if options.image_size is None and height != width:
        raise UsageError(
            f"the images of {source} are {height} pixels high and {width} wide: --image-size {min(height, width)} crops them square"
        )
    if options.image_size not in (None, height) or height != width:
        pixels = resize_images(pixels, options.image_size or height)
    return Images(InMemoryImageStore(pixels.contiguous()), np.arange(len(pixels)), labels, classes, source)

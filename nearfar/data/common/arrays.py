"""Images and labels that are already arrays: checked, brought to one layout, copied."""

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
    """How to read: what every reader is told besides where to look."""

    image_size: int | None = None
    on_error: str = "stop"
    progress: ProgressCallback | None = None


def as_pixels(images: np.ndarray | Tensor, description: str) -> UInt8[Tensor, "n c h w"]:
    """A copy as uint8 (n, c, h, w). Floats in [0, 1] are scaled to 0 … 255; the last axis is the channels if it is 1 or 3 long."""
    if isinstance(images, Tensor):
        images = images.detach().cpu()
        images = (images.float() if images.is_floating_point() else images).numpy()
    values = _as_bytes(images, description)
    if values.ndim == 3 and values.shape[2] in (1, 3):
        raise UsageError(
            f"{description} has the shape {images.shape}, as one image has: give image[None]; images have the shape {IMAGE_LAYOUTS}"
        )
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4 and values.shape[3] in (1, 3):
        values = values.transpose(0, 3, 1, 2)
    elif values.ndim != 4 or values.shape[1] not in (1, 3):
        raise UsageError(f"{description} has the shape {images.shape}; images have the shape {IMAGE_LAYOUTS}")
    if values.size == 0:
        raise UsageError(f"{description} has the shape {images.shape}: there are no pixels in it")
    return torch.from_numpy(np.array(values, order="C"))


def _as_bytes(values: np.ndarray, what: str) -> UInt8[np.ndarray, "..."]:
    if values.dtype == np.uint8:
        return values
    if not np.issubdtype(values.dtype, np.floating):
        raise UsageError(f"{what} holds {values.dtype}; images are uint8 (0 to 255) or floats in [0, 1]")
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise UsageError(f"{what} holds floats from {values.min():g} to {values.max():g}; images are floats in [0, 1] or uint8 (0 to 255)")
    return (values * 255).round().astype(np.uint8)


def as_label_array(labels: Any, n: int, description: str, sample_noun: str = "images") -> Shaped[np.ndarray, " n"]:
    """One whole number or text for each of `n` images, or of other things; a column (n, 1) counts as one too.

    -1 is what many data call an unknown label. It would pass for a class, and is refused; but for two classes, -1 and 1 say.
    """
    try:
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError as e:
        raise UsageError(f"{description} has labels that are no plain list: {e}") from e
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UsageError(f"{description} has labels of the shape {values.shape}; expected one for each of its {sample_noun}: ({n},)")
    if len(values) != n:
        raise UsageError(f"{description} has {n:,} {sample_noun} but {len(values):,} labels")
    if values.dtype == object and any(all(isinstance(v, kind) for v in values) for kind in (str, (int, np.integer))):
        values = np.array(values.tolist())  # a column of a pandas table
    if values.dtype.kind not in "biuU":
        raise UsageError(f"{description} has labels of type {values.dtype}; labels are whole numbers or texts")
    if values.dtype.kind == "i" and (values == -1).any() and len(np.unique(values)) > 2:
        raise UsageError(
            f"{description} has the label -1 among others: if it means unknown, leave those {sample_noun} out, or give all {sample_noun} without labels; "
            "if it is a class, name it otherwise"
        )
    return values


def encode_labels(*parts: Shaped[np.ndarray, "..."] | None) -> tuple[list[Int64[np.ndarray, "..."] | None], tuple[str, ...]]:
    """Labels of several parts as positions 0 … k-1 in one sorted list of classes; a part without labels stays so."""
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
    """Images of an array, at their own size or scaled to `how.image_size`."""
    height, width = pixels.shape[2:]
    if options.image_size is None and height != width:
        raise UsageError(
            f"the images of {source} are {height} pixels high and {width} wide: --image-size {min(height, width)} crops them square"
        )
    if options.image_size not in (None, height) or height != width:
        pixels = resize_images(pixels, options.image_size or height)
    return Images(InMemoryImageStore(pixels.contiguous()), np.arange(len(pixels)), labels, classes, source)

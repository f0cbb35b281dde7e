"""Reader of torch datasets and other sequences of images.

All samples are read once into memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions, as_label_array, as_pixels, encode_labels
from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.common.splits import Splits
from nearfar.data.images.dataset import Images
from nearfar.data.images.decode import convert_channels, is_gray, resize_images, rotate_upright, to_pixel_array
from nearfar.data.images.image_folder import find_common_size


def read_torch_dataset(dataset: Any, options: ImageReadOptions, source: str) -> Splits:
    """Read a torch dataset, or another sequence of images, into memory.

    A sample is an image (Pillow, array or tensor) or a pair (image, label). Sizes may differ: the rules of
    folders apply. Each sample is read once, so a random augmentation in the dataset is applied only once.
    `dataset.classes` names the classes if labels are positions in it.

    Args:
        dataset: Object with a length and an index.
        options: Options of the readers.
        source: Name of the data for the user.

    Raises:
        UsageError: A sample cannot be read and `options.on_error` is "stop", or no sample can be read.
    """
    images, labels, rows = _collect(dataset, options, source)
    if not images:
        raise UsageError(f"{source} has no sample that can be read")
    channels = max(len(image) for image in images)
    size = options.image_size or find_common_size({image.shape[1:] for image in images})
    pixels = torch.cat([_scaled(image, size).expand(-1, channels, -1, -1) for image in images])
    coded, classes = _classes(labels, dataset, source)
    skipped = tuple(f"row {i}" for i in np.setdiff1d(np.arange(len(dataset)), rows))
    store = InMemoryImageStore(pixels, tuple(f"row {i}" for i in rows))
    return Splits(Images(store, np.arange(len(pixels)), coded, classes, source, skipped), None)


def _collect(dataset: Any, options: ImageReadOptions, source: str) -> tuple[list[np.ndarray], list[Any], list[int]]:
    images, labels, rows = [], [], []
    for i in range(len(dataset)):
        try:
            item = dataset[i]
            image, label = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, None)
            image = _pixels(image)
        except Exception as e:  # a user's dataset may raise any exception
            if options.on_error == "stop":
                raise UsageError(f"sample {i} of {source}: {e}. Leave such samples out with --on-error skip") from e
            continue
        images.append(_scaled(image, options.image_size)[0].numpy() if options.image_size else image)
        labels.append(label)
        rows.append(i)
        if options.progress:
            options.progress(i + 1, len(dataset))
    return images, labels, rows


def _pixels(image: Any) -> UInt8[np.ndarray, "c h w"]:
    if isinstance(image, Image.Image):
        return to_pixel_array(convert_channels(rotate_upright(image), 1 if is_gray(image) else 3))
    if isinstance(image, (np.ndarray, Tensor)):
        return as_pixels(image[None], "it")[0].numpy()
    raise TypeError(f"it is a {type(image).__name__}; a sample must be an image (Pillow, array, tensor) or a pair (image, label)")


def _scaled(image: UInt8[np.ndarray, "c h w"], size: int) -> UInt8[Tensor, "1 c size size"]:
    pixels = torch.from_numpy(image.copy())[None]
    return pixels if image.shape[1:] == (size, size) else resize_images(pixels, size)


def _classes(labels: list[Any], dataset: Any, source: str) -> tuple[np.ndarray | None, tuple[str, ...]]:
    if all(label is None for label in labels):
        return None, ()
    if any(label is None for label in labels):
        raise UsageError(f"{source} has labels for some samples only")
    values = as_label_array([v.item() if isinstance(v, (Tensor, np.generic)) else v for v in labels], len(labels), source)
    names = getattr(dataset, "classes", None)
    if names and values.dtype.kind in "iu" and values.min() >= 0 and values.max() < len(names):
        return values.astype(np.int64), tuple(str(name) for name in names)
    coded, classes = encode_labels(values)
    return coded[0], classes

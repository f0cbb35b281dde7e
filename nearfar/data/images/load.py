"""Loader of images as a training and a test split.

A new kind of data on disk is one more row of `_FOLDERS` or `_FILES`. A new built-in name is one more row
of `_NAMES`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.arrays import ImageReadOptions, as_label_array, as_pixels, build_images, encode_labels
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.images.decode import IMAGE_EXTENSIONS
from nearfar.data.images.image_folder import read_image_files, read_image_folder
from nearfar.data.images.readers import find_cifar_folder, find_idx_folder, read_cifar, read_idx, read_numpy
from nearfar.data.images.torch_datasets import read_torch_dataset


def load_images(
    spec: Any,
    *,
    seed: int = 0,
    image_size: int | None = None,
    on_error: str = "stop",
    test_ids: Sequence[int] | np.ndarray | None = None,
    progress: ProgressCallback | None = None,
) -> Splits:
    """Load images as a training and a test split.

    Args:
        spec: Source of the images: 'digits'; a folder of images, of CIFAR-10's binary files or of MNIST's idx
            files; a .npy or .npz file; a list of image files; an array or tensor of images; a pair
            (images, labels); a torch dataset.
        seed: Random seed of the split if the data bring none. The test split is one in five of each class.
        image_size: Pixels a side to which images are cropped and scaled.
        on_error: "stop" at a broken image with an error that names it, or "skip" it and list it in
            `Images.skipped`.
        test_ids: Test rows stored by an earlier run (`Splits.test_ids`). An empty list means no test split.
        progress: Called as progress(done, total) while files are read.

    Raises:
        UsageError: The data cannot be read, or have fewer than two training images.
    """
    if image_size is not None and image_size < 1:
        raise UsageError(f"--image-size must be at least 1, got {image_size}")
    if on_error not in ("stop", "skip"):
        raise UsageError(f"--on-error must be 'stop' or 'skip', got {on_error!r}")
    found = load_image_source(spec, ImageReadOptions(image_size, on_error, progress))
    n = len(found.train)
    if n < 2:
        raise UsageError(f"{found.train.source} has {n} image{'' if n == 1 else 's'} to learn from; at least 2 are needed")
    return split_train_test(found, seed, test_ids)


def load_image_source(spec: Any, options: ImageReadOptions) -> Splits:
    """Load all images.

    The result has a test split only if the data bring one.
    """
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec](options)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(spec, options)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(path, (str, os.PathLike)) for path in spec):
        return read_image_files(spec, options, f"list of {len(spec)} files")
    if isinstance(spec, (np.ndarray, Tensor)):
        return _read_arrays(spec, None, options)
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], (np.ndarray, Tensor)):
        return _read_arrays(*spec, options)
    if hasattr(spec, "__len__") and hasattr(spec, "__getitem__") and not isinstance(spec, Mapping):
        return read_torch_dataset(spec, options, f"{type(spec).__name__} of {len(spec)} items")
    raise UsageError(
        f"cannot read images from a {type(spec).__name__}: give a name, a path, an array, a pair (images, labels) "
        "or a dataset with a length (not an iterable one)"
    )


def _read_path(spec: str | os.PathLike, options: ImageReadOptions) -> Splits:
    text = os.fspath(spec)
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'digits', a folder of images, CIFAR-10 or MNIST files, or a .npy or .npz file")
    if not os.path.exists(path):
        raise build_missing_data_error(text, _NAMES)
    if path.is_dir():
        for find, read in _FOLDERS:
            if folder := find(path):
                return read(folder, options, text)
        return read_image_folder(path, options, text)
    if read := _FILES.get(path.suffix.lower()):
        return read(path, options, text)
    if path.suffix.lower() in IMAGE_EXTENSIONS:
        return read_image_files([path], options, text)
    raise UsageError(f"cannot read images from the file {path}: give a folder, or a file that ends in {' or '.join(_FILES)}")


def _read_arrays(images: np.ndarray | Tensor, labels: Any, options: ImageReadOptions) -> Splits:
    source = f"{'tensor' if isinstance(images, Tensor) else 'array'} of shape {tuple(images.shape)}"
    pixels = as_pixels(images, f"the {source}")
    (coded,), classes = encode_labels(None if labels is None else as_label_array(labels, len(pixels), f"the {source}"))
    return Splits(build_images(pixels, options, source, coded, classes), None)


def _digits(options: ImageReadOptions) -> Splits:
    """Load scikit-learn's 1,797 handwritten digits of 8 x 8 pixels.

    Their 17 levels of gray are spread over 0 … 255.
    """
    from sklearn.datasets import load_digits  # slow import (one second) that only this name needs

    digits: Any = load_digits()
    pixels = torch.from_numpy((digits.images * (255 / 16)).round().astype(np.uint8))[:, None]
    return Splits(build_images(pixels, options, "digits", digits.target.astype(np.int64), tuple(str(t) for t in digits.target_names)), None)


_NAMES = {"digits": _digits}
_FOLDERS = ((find_cifar_folder, read_cifar), (find_idx_folder, read_idx))
_FILES = {".npy": read_numpy, ".npz": read_numpy}

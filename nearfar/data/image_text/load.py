"""Loader of captioned images as a training and a test split."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits
from nearfar.data.common.text_tables import TABLE_READERS
from nearfar.data.image_text.caption_tables import read_caption_folder, read_caption_table
from nearfar.data.image_text.dataset import CaptionedImages, attach_captions, split_captioned_images
from nearfar.data.image_text.readers import is_emoji_folder, is_flickr8k_folder, make_digits_captions, read_emoji_folder, read_flickr8k
from nearfar.data.images.image_adapter import adapt_images
from nearfar.data.images.load import load_image_source as read_images

BUILTIN_CAPTIONS: dict[str, Callable[[ImageReadOptions], Splits]] = {"digits-captions": make_digits_captions}
_FOLDERS = ((is_flickr8k_folder, read_flickr8k), (is_emoji_folder, read_emoji_folder))


def load_captions(
    spec: Any, options: ImageReadOptions, *, seed: int = 0, columns: str | None = None, test_ids: Sequence[int] | np.ndarray | None = None
) -> Splits:
    """Load captioned images as a training and a test split.

    No image or object is in both splits.

    Args:
        spec: Source of the images: 'digits-captions'; a .csv, .tsv, .jsonl or .parquet with the columns image
            and caption, or a folder with one (or with train.* and test.*); Flickr8k's folder; a folder of
            emojis; a pair (images, captions), with a text or a list of texts for each image.
        options: Options of the image readers.
        seed: Random seed of the split if the data bring none. The test split is one object in five.
        columns: Column of images and column of captions, and `label=NAME`.
        test_ids: Test rows stored by an earlier run. An empty list means no test split.

    Raises:
        UsageError: The data cannot be read, or have fewer than two training images.
    """
    found = load_all_captions(spec, options, columns)
    if len(found.train) < 2:
        raise UsageError(f"{found.train.source} has {len(found.train)} captioned image to learn from; at least 2 are needed")
    return split_captioned_images(found, seed, test_ids)


def is_captioned(spec: Any) -> bool:
    """Return True if the data are images with captions, not images alone."""
    if isinstance(spec, CaptionedImages) or (isinstance(spec, str) and spec in BUILTIN_CAPTIONS):
        return True
    if not isinstance(spec, (str, os.PathLike)):
        return False
    path = Path(spec).expanduser()
    if path.is_file():
        return path.suffix.lower() in TABLE_READERS
    return path.is_dir() and (any(known(path) for known, _ in _FOLDERS) or any(f.suffix.lower() in TABLE_READERS for f in path.iterdir()))


def load_all_captions(spec: Any, options: ImageReadOptions, columns: str | None = None) -> Splits:
    """Load all captioned images, with a test split only if the data bring one."""
    if isinstance(spec, CaptionedImages):
        return Splits(spec, None)
    if isinstance(spec, str) and spec in BUILTIN_CAPTIONS:
        return BUILTIN_CAPTIONS[spec](options)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), options, columns)
    if isinstance(spec, tuple) and len(spec) == 2:
        return Splits(_paired(*spec, options), None)
    raise UsageError(f"cannot read captioned images from a {type(spec).__name__}: give a name, a path or a pair (images, captions)")


def _read_path(text: str, options: ImageReadOptions, columns: str | None) -> Splits:
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'digits-captions', or a table with the columns image and caption")
    if not path.exists():
        raise build_missing_data_error(text, BUILTIN_CAPTIONS)
    if path.is_file():
        if path.suffix.lower() not in TABLE_READERS:
            raise UsageError(f"cannot read captions from the file {path}: give a table that ends in {' or '.join(TABLE_READERS)}")
        return Splits(read_caption_table(path, options, text, columns), None)
    reader = next((read for known, read in _FOLDERS if known(path)), None)
    return read_caption_folder(path, options, text, columns) if reader is None else reader(path, options, text)


def _paired(images: Any, captions: Any, options: ImageReadOptions) -> CaptionedImages:
    found = read_images(images, options).train
    said = [[own] if isinstance(own, str) else list(own) for own in captions]
    if len(said) != len(found):
        raise UsageError(f"{len(found)} images and {len(said)} captions; each image has a caption or a list of captions")
    empty = next((i for i, own in enumerate(said) if not own or not all(isinstance(t, str) and t.strip() for t in own)), None)
    if empty is not None:
        raise UsageError(f"image {empty} has no caption, or one that is not a text")
    return attach_captions(found, said)


def adapt_captioned_images(data: CaptionedImages, channels: int, size: int) -> CaptionedImages:
    """Return the dataset with images of this size and number of channels."""
    return replace(data, images=adapt_images(data.images, channels, size))

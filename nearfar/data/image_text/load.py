"""From what a user names to a training and a test split of captioned images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import How
from nearfar.data.common.missing import missing
from nearfar.data.common.splits import Splits
from nearfar.data.common.tables import TABLES
from nearfar.data.image_text.caption_tables import read_caption_folder, read_caption_table
from nearfar.data.image_text.dataset import Captioned, divide_captioned, with_captions
from nearfar.data.image_text.readers import digits_captions, is_emoji, is_flickr8k, read_emoji, read_flickr8k
from nearfar.data.images.accept import adapted
from nearfar.data.images.load import read as read_images

NAMES: dict[str, Callable[[How], Splits]] = {"digits-captions": digits_captions}
_FOLDERS = ((is_flickr8k, read_flickr8k), (is_emoji, read_emoji))


def open_captioned(
    spec: Any, how: How, *, seed: int = 0, columns: str | None = None, split: Sequence[int] | np.ndarray | None = None
) -> Splits:
    """Open captioned images as a training and a test split; no image (nor thing) of the one is in the other.

    spec        'digits-captions'; a .csv, .tsv, .jsonl or .parquet with the columns image and caption, or a folder with one (or with
                train.* and test.*); Flickr8k's folder; a folder of emojis; a pair (images, captions), a text or a list of texts an image
    seed        names the split, where the data bring none: one thing in five
    columns     the column of images and that of captions, and `label=NAME`
    split       test rows stored by an earlier run; an empty list: no test split
    """
    found = read_captioned(spec, how, columns)
    if len(found.train) < 2:
        raise UsageError(f"{found.train.source} has {len(found.train)} captioned image to learn from; at least 2 are needed")
    return divide_captioned(found, seed, split)


def is_captioned(spec: Any) -> bool:
    """Whether this names images with captions, and not images alone."""
    if isinstance(spec, Captioned) or (isinstance(spec, str) and spec in NAMES):
        return True
    if not isinstance(spec, (str, os.PathLike)):
        return False
    path = Path(spec).expanduser()
    if path.is_file():
        return path.suffix.lower() in TABLES
    return path.is_dir() and (any(known(path) for known, _ in _FOLDERS) or any(f.suffix.lower() in TABLES for f in path.iterdir()))


def read_captioned(spec: Any, how: How, columns: str | None = None) -> Splits:
    """Everything there is; a test split only where the data bring one."""
    if isinstance(spec, Captioned):
        return Splits(spec, None)
    if isinstance(spec, str) and spec in NAMES:
        return NAMES[spec](how)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), how, columns)
    if isinstance(spec, tuple) and len(spec) == 2:
        return Splits(_paired(*spec, how), None)
    raise UsageError(f"cannot read captioned images from a {type(spec).__name__}: give a name, a path or a pair (images, captions)")


def _read_path(text: str, how: How, columns: str | None) -> Splits:
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'digits-captions', or a table with the columns image and caption")
    if not path.exists():
        raise missing(text, NAMES)
    if path.is_file():
        if path.suffix.lower() not in TABLES:
            raise UsageError(f"cannot read captions from the file {path}: give a table that ends in {' or '.join(TABLES)}")
        return Splits(read_caption_table(path, how, text, columns), None)
    reader = next((read for known, read in _FOLDERS if known(path)), None)
    return read_caption_folder(path, how, text, columns) if reader is None else reader(path, how, text)


def _paired(images: Any, captions: Any, how: How) -> Captioned:
    found = read_images(images, how).train
    said = [[own] if isinstance(own, str) else list(own) for own in captions]
    if len(said) != len(found):
        raise UsageError(f"{len(found)} images and {len(said)} captions; each image has a caption or a list of captions")
    empty = next((i for i, own in enumerate(said) if not own or not all(isinstance(t, str) and t.strip() for t in own)), None)
    if empty is not None:
        raise UsageError(f"image {empty} has no caption, or one that is no text")
    return with_captions(found, said)


def fitted(data: Captioned, channels: int, size: int) -> Captioned:
    """The same with images of this size and as many channels."""
    return replace(data, images=adapted(data.images, channels, size))

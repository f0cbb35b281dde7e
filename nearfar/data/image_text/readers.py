"""Readers of captioned images: Flickr8k, emojis of several vendors, and digits with their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.common.splits import Splits
from nearfar.data.common.text_tables import TABLE_READERS
from nearfar.data.image_text.caption_tables import CaptionCollector
from nearfar.data.image_text.dataset import CaptionedImages, attach_captions
from nearfar.data.images.dataset import Images
from nearfar.data.images.load import load_image_source
from nearfar.data.text.readers import RowCollector, iterate_lines

DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CAPTION_TEMPLATES = ("the digit {}", "a handwritten {}", "somebody wrote the number {}", "this is a {}")
FLICKR8K_CAPTION_FILE, FLICKR8K_SPLIT_FILE = "Flickr8k.token.txt", "Flickr_8k.{}Images.txt"
EMOJI_TABLE = "emoji.tsv"


def make_digits_captions(options: ImageReadOptions) -> Splits:
    """Build captioned images from scikit-learn's handwritten digits.

    Each digit has four sentences that name it.
    """
    images: Images = load_image_source("digits", options).train
    assert images.labels is not None
    named = Images(images.store, images.ids, images.labels, DIGIT_NAMES, "digits-captions")
    return Splits(
        attach_captions(named, [[said.format(DIGIT_NAMES[label]) for said in CAPTION_TEMPLATES] for label in images.labels]), None
    )


def is_flickr8k_folder(folder: Path) -> bool:
    """Return True if the folder holds Flickr8k."""
    return (folder / FLICKR8K_CAPTION_FILE).is_file()


def read_flickr8k(folder: Path, options: ImageReadOptions, source: str, test_split: Literal["test", "dev"] = "test") -> Splits:
    """Read Flickr8k, with five captions for each image.

    The splits are the published ones: 6,000 training images and 1,000 test images. With `test_split="dev"`
    the test images are the 1,000 images for choosing settings. All other images are not opened.

    Reference: Hodosh, Young & Hockenmaier (2013).
    """
    names = [_names(folder / FLICKR8K_SPLIT_FILE.format(part), options) for part in ("train", test_split)]
    rows = RowCollector(options.on_error)
    rows.start_file(FLICKR8K_CAPTION_FILE)
    listed, wanted = CaptionCollector(_pictures(folder), rows), set(names[0]) | set(names[1])
    for line, text in iterate_lines(folder / FLICKR8K_CAPTION_FILE, rows):
        place, tab, caption = text.partition("\t")
        image, number, _ = place.rpartition("#")
        if not (tab and number):
            rows.reject_row(line, "expected IMAGE.jpg#0, a tab and a caption")
        elif image in wanted:
            listed.add(line, image, [caption])
    found = listed.to_captioned_images(source, options)
    row = {found.name(i): i for i in range(len(found))}
    train, tested = ([row[name] for name in part if name in row] for part in names)
    if len(row) < len(wanted) and options.on_error == "stop":
        raise UsageError(f"{folder / FLICKR8K_CAPTION_FILE} has no captions for {min(wanted - row.keys())}, which the lists of images name")
    return Splits(found.subset(train), found.subset(tested))


def _pictures(folder: Path) -> Path:
    usual = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset")
    found = next((folder / name for name in usual if (folder / name).is_dir()), None)
    if found is None:
        raise UsageError(f"{folder} has no folder of images: looked for {', '.join(usual)}")
    return found.absolute()


def _names(path: Path, options: ImageReadOptions) -> list[str]:
    if not path.is_file():
        raise UsageError(f"{path} is missing: it lists the images of each split")
    return [line.strip() for _, line in iterate_lines(path, RowCollector(options.on_error, files=[path.name])) if line.strip()]


def is_emoji_folder(folder: Path) -> bool:
    """Return True if the folder holds a table of emojis."""
    return (folder / EMOJI_TABLE).is_file()


def read_emoji_folder(folder: Path, options: ImageReadOptions, source: str) -> Splits:
    """Read emoji drawings of several vendors.

    The folder holds emoji.tsv (image, name, short_names, category) and one folder of drawings for each
    vendor.

    An emoji is one object with one drawing from each vendor. Its captions are its Unicode name and its short
    names. Its class is the category. A vendor may lack some drawings.
    """
    vendors = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not vendors:
        raise UsageError(f"{folder} has no folders of drawings next to {EMOJI_TABLE}")
    rows = RowCollector(options.on_error)
    rows.start_file(EMOJI_TABLE)
    listed = CaptionCollector(folder.absolute(), rows)
    for thing, (line, row) in enumerate(TABLE_READERS[".tsv"](folder / EMOJI_TABLE, rows)):
        if missing := next((c for c in ("image", "name", "short_names", "category") if not row.get(c)), None):
            rows.reject_row(line, f"it has no {missing!r}")
            continue
        drawn = [f"{vendor}/{row['image']}" for vendor in vendors if (folder / vendor / row["image"]).is_file()]
        if not drawn:
            rows.reject_row(line, f"none of {', '.join(vendors)} has a drawing of {row['image']}")
        said = dict.fromkeys(_plain(name) for name in (row["name"], *row["short_names"].split(",")))
        for path in drawn:
            listed.add(line, path, said, row["category"])
        listed.object_ids += [thing] * (len(listed.image_numbers) - len(listed.object_ids))
    return Splits(listed.to_captioned_images(source, options), None)


def _plain(name: str) -> str:
    """Convert a name such as UP-POINTING_TRIANGLE to words."""
    return " ".join(re.sub(r"[_\-]", " ", name.lower()).split())


def get_vendors(data: CaptionedImages) -> np.ndarray:
    """Return the folder of each emoji drawing, which names the vendor."""
    return np.array([data.name(i).split("/")[0] for i in range(len(data))])

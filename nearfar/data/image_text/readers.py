"""Captioned images in layouts of their own: Flickr8k, emojis of several vendors, and digits with their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import How
from nearfar.data.common.splits import Splits
from nearfar.data.common.tables import TABLES
from nearfar.data.common.text_rows import Collected, lines_of
from nearfar.data.image_text.caption_tables import Listed
from nearfar.data.image_text.dataset import Captioned, with_captions
from nearfar.data.images.dataset import Images
from nearfar.data.images.load import read

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SAID = ("the digit {}", "a handwritten {}", "somebody wrote the number {}", "this is a {}")
TOKENS, PART = "Flickr8k.token.txt", "Flickr_8k.{}Images.txt"
EMOJIS = "emoji.tsv"


def digits_captions(how: How) -> Splits:
    """scikit-learn's handwritten digits, each with four sentences that say which it is."""
    images: Images = read("digits", how).train
    assert images.labels is not None
    named = Images(images.store, images.ids, images.labels, DIGITS, "digits-captions")
    return Splits(with_captions(named, [[said.format(DIGITS[label]) for said in SAID] for label in images.labels]), None)


def is_flickr8k(folder: Path) -> bool:
    return (folder / TOKENS).is_file()


def read_flickr8k(folder: Path, how: How, source: str, test: Literal["test", "dev"] = "test") -> Splits:
    """Hodosh, Young & Hockenmaier (2013): five captions an image; 6,000 images to learn from, 1,000 to test on, as published.

    `test="dev"`: tested on the 1,000 images for choosing settings instead. The others are not opened.
    """
    names = [_names(folder / PART.format(part), how) for part in ("train", test)]
    rows = Collected(how.on_error)
    rows.open(TOKENS)
    listed, wanted = Listed(_pictures(folder), rows), set(names[0]) | set(names[1])
    for line, text in lines_of(folder / TOKENS, rows):
        place, tab, caption = text.partition("\t")
        image, number, _ = place.rpartition("#")
        if not (tab and number):
            rows.broken(line, "expected IMAGE.jpg#0, a tab and a caption")
        elif image in wanted:
            listed.add(line, image, [caption])
    found = listed.captioned(source, how)
    row = {found.name(i): i for i in range(len(found))}
    train, tested = ([row[name] for name in part if name in row] for part in names)
    if len(row) < len(wanted) and how.on_error == "stop":
        raise UsageError(f"{folder / TOKENS} has no captions for {min(wanted - row.keys())}, which the lists of images name")
    return Splits(found.subset(train), found.subset(tested))


def _pictures(folder: Path) -> Path:
    usual = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset")
    found = next((folder / name for name in usual if (folder / name).is_dir()), None)
    if found is None:
        raise UsageError(f"{folder} has no folder of images: looked for {', '.join(usual)}")
    return found.absolute()


def _names(path: Path, how: How) -> list[str]:
    if not path.is_file():
        raise UsageError(f"{path} is missing: it says which images are for what")
    return [line.strip() for _, line in lines_of(path, Collected(how.on_error, files=[path.name])) if line.strip()]


def is_emoji(folder: Path) -> bool:
    return (folder / EMOJIS).is_file()


def read_emoji(folder: Path, how: How, source: str) -> Splits:
    """emoji.tsv (image, name, short_names, category) beside one folder of drawings a vendor.

    An emoji is one thing with a drawing of each vendor's; its captions are its Unicode name and its short names, its class the
    category. A vendor need not have drawn them all.
    """
    vendors = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not vendors:
        raise UsageError(f"{folder} has no folders of drawings beside {EMOJIS}")
    rows = Collected(how.on_error)
    rows.open(EMOJIS)
    listed = Listed(folder.absolute(), rows)
    for thing, (line, row) in enumerate(TABLES[".tsv"](folder / EMOJIS, rows)):
        if missing := next((c for c in ("image", "name", "short_names", "category") if not row.get(c)), None):
            rows.broken(line, f"it has no {missing!r}")
            continue
        drawn = [f"{vendor}/{row['image']}" for vendor in vendors if (folder / vendor / row["image"]).is_file()]
        if not drawn:
            rows.broken(line, f"none of {', '.join(vendors)} has drawn {row['image']}")
        said = dict.fromkeys(_plain(name) for name in (row["name"], *row["short_names"].split(",")))
        for path in drawn:
            listed.add(line, path, said, row["category"])
        listed.things += [thing] * (len(listed.numbers) - len(listed.things))
    return Splits(listed.captioned(source, how), None)


def _plain(name: str) -> str:
    """UP-POINTING_TRIANGLE as words."""
    return " ".join(re.sub(r"[_\-]", " ", name.lower()).split())


def vendor_of(data: Captioned) -> np.ndarray:
    """For each drawing of an emoji, the folder that it lies in."""
    return np.array([data.name(i).split("/")[0] for i in range(len(data))])

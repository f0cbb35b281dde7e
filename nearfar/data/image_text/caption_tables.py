"""Tables of images and captions: CSV, TSV, JSON lines or Parquet, one caption a row or a list of them.

    image,caption
    beach/1.jpg,two dogs run along the water
    beach/1.jpg,dogs at the sea

Paths are relative to the table. Rows of the same image are its captions. A column `label` names classes, for zero-shot tests.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import How, number_classes
from nearfar.data.common.splits import Splits
from nearfar.data.common.tables import LABELS, TABLES, Roles, Row, roles
from nearfar.data.common.text_rows import Collected
from nearfar.data.image_text.dataset import Captioned, Grouped
from nearfar.data.images.dataset import Images
from nearfar.data.images.image_folder import read_listed

IMAGES = ("image", "image_path", "path", "filepath", "file_name", "filename", "file")
CAPTIONS = ("caption", "captions", "text", "title", "sentence")


@dataclass
class Listed:
    """Images and captions as they are found in a table; `folder` is what paths are relative to."""

    folder: Path
    rows: Collected
    numbers: dict[str, int] = field(default_factory=dict)
    """The images, by path, in the order of their first rows."""
    labels: dict[str, str] = field(default_factory=dict)
    things: list[int] = field(default_factory=list)
    """For each image the number of the thing that it shows, where that is not the image itself."""

    def add(self, line: int, image: str, captions: Iterable[str], label: str | None = None) -> None:
        path = posixpath.normpath(image)
        captions = list(captions)
        if problem := self._problem(path, captions, label):
            return self.rows.broken(line, problem)
        number = self.numbers.setdefault(path, len(self.numbers))
        if label is not None:
            self.labels[path] = label
        for text in captions:
            self.rows.add({"caption": text.strip()}, line, passage=number)
        return None

    def _problem(self, path: str, captions: list[str], label: str | None) -> str | None:
        if path not in self.numbers and not (self.folder / path).is_file():
            return f"there is no image {self.folder / path}"
        if not captions or not all(text.strip() for text in captions):
            return "a caption is empty"
        if label is not None and self.labels.get(path, label) != label:
            return f"{path} has the label {label!r} here and {self.labels[path]!r} in an earlier row"
        return None

    def captioned(self, source: str, how: How) -> Captioned:
        """With the images that can be read; what was said of the others is left out."""
        texts = self.rows.texts(source)
        images = read_listed(self.folder, [list(self.numbers)], None, how, source).train
        numbers = np.array([self.numbers[images.name(i)] for i in range(len(images))], dtype=np.int64)
        row = np.full(len(self.numbers), -1, dtype=np.int64)
        row[numbers] = np.arange(len(images))
        assert texts.passages is not None
        thing = np.array(self.things, dtype=np.int64)[numbers] if self.things else np.arange(len(images))
        return Captioned(self._labelled(images), texts, Grouped.by(row[texts.passages], len(images)), thing)

    def _labelled(self, images: Images) -> Images:
        names = [self.labels.get(images.name(i)) for i in range(len(images))]
        if not self.labels:
            return images
        if None in names:
            raise UsageError(f"{images.source}: {images.name(names.index(None))} has no label; all images must have one, or none")
        (labels,), classes = number_classes(np.array(names))
        return replace(images, labels=labels, classes=classes)


def read_caption_table(path: Path, how: How, source: str, columns: str | None) -> Captioned:
    listed = Listed(path.absolute().parent, Collected(how.on_error))
    listed.rows.open(path.name)
    take_captions(TABLES[path.suffix.lower()](path, listed.rows), listed, path.name, columns)
    return listed.captioned(source, how)


def take_captions(rows: Iterable[Row], listed: Listed, name: str, columns: str | None) -> None:
    chosen: Roles | None = None
    for line, row in rows:
        chosen = chosen or caption_roles(columns, list(row), name)
        image, said = (row.get(column) for column in chosen.texts)
        captions: list[Any] = said if isinstance(said, list) else [said]
        label = None if chosen.label is None else row.get(chosen.label)
        if not isinstance(image, str) or not image.strip():
            listed.rows.broken(line, f"{chosen.texts[0]!r} is no path of an image: {_short(image)}")
        elif wrong := [text for text in captions if not isinstance(text, str)]:
            listed.rows.broken(line, f"{chosen.texts[1]!r} is no text, nor a list of texts: {_short(wrong[0])}")
        elif chosen.label is not None and label in (None, ""):
            listed.rows.broken(line, f"it has no {chosen.label!r}")
        else:
            listed.add(line, image, captions, None if label is None else str(label))


def caption_roles(wanted: str | None, known: list[str], source: str) -> Roles:
    """Which column is the path of the image, and which the caption: as --columns image,caption says, or by their usual names."""
    if wanted is not None:
        found = roles(wanted, known, source)
        if len(found.texts) != 2:
            raise UsageError(f"--columns {wanted}: name the column of images and that of captions, as in --columns image,caption")
        return found
    image, caption = (next((name for name in usual if name in known), None) for usual in (IMAGES, CAPTIONS))
    if image is None or caption is None:
        raise UsageError(
            f"{source} has the columns {', '.join(known)}: name the column of images and that of captions, as in --columns image,caption"
        )
    return Roles((image, caption), next((name for name in LABELS if name in known), None))


def read_caption_folder(folder: Path, how: How, source: str, columns: str | None) -> Splits:
    """train.* and test.* where there are such tables (test images must be others); else the only table there is."""
    tables = sorted(f for f in folder.iterdir() if f.is_file() and f.suffix.lower() in TABLES and not f.name.startswith("."))
    by_name = {f.stem.lower(): f for f in tables}
    if "train" in by_name:
        train = read_caption_table(by_name["train"], how, source, columns)
        test = read_caption_table(by_name["test"], how, source, columns) if "test" in by_name else None
        return Splits(train, test) if test is None else _same_classes(train, test)
    if len(tables) != 1:
        found = f"{len(tables)} tables ({', '.join(f.name for f in tables[:5])})" if tables else "none"
        raise UsageError(
            f"{source} should hold one table of images and captions ({' '.join(TABLES)}), or train.* and test.*: found {found}"
        )
    return Splits(read_caption_table(tables[0], how, source, columns), None)


def _same_classes(train: Captioned, test: Captioned) -> Splits:
    """Both parts with one numbering of the classes and as many channels; none of the test images may be one of the training's."""
    seen = {train.name(i) for i in range(len(train))}
    if both := next((test.name(i) for i in range(len(test)) if test.name(i) in seen), None):
        raise UsageError(f"{train.source}: {both} is in the training table and in the test table")
    if train.images.shape != test.images.shape:
        raise UsageError(f"{train.source}: training images are {train.images.shape}, test images {test.images.shape}: use --image-size")
    classes = tuple(sorted({*train.classes, *test.classes}))
    parts = []
    for part in (train, test):
        labels = None if part.labels is None else np.array([classes.index(c) for c in part.classes], dtype=np.int64)[part.labels]
        parts.append(replace(part, images=replace(part.images, labels=labels, classes=classes)))
    return Splits(*parts)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"

"""Readers of tables of images and captions: CSV, TSV, JSON lines or Parquet.

A row holds one caption, or a list of captions:

    image,caption
    beach/1.jpg,two dogs run along the water
    beach/1.jpg,dogs at the sea

Paths are relative to the table. Rows of the same image are its captions. A column `label` names classes, for
zero-shot tests.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import ImageReadOptions, encode_labels
from nearfar.data.common.splits import Splits
from nearfar.data.common.text_tables import LABEL_COLUMNS, TABLE_READERS, ColumnRoles, NumberedRow, resolve_column_roles
from nearfar.data.image_text.dataset import CaptionedImages, GroupedRows
from nearfar.data.images.dataset import Images
from nearfar.data.images.image_folder import read_image_paths
from nearfar.data.text.readers import RowCollector

IMAGE_COLUMNS = ("image", "image_path", "path", "filepath", "file_name", "filename", "file")
CAPTION_COLUMNS = ("caption", "captions", "text", "title", "sentence")


@dataclass
class CaptionCollector:
    """Collector of the images and captions of a table.

    Paths are relative to `folder`.
    """

    folder: Path
    row_collector: RowCollector
    image_numbers: dict[str, int] = field(default_factory=dict)
    """Number of each image by path, in the order of the images' first rows."""
    labels: dict[str, str] = field(default_factory=dict)
    object_ids: list[int] = field(default_factory=list)
    """Object number of each image. Empty if each image is its own object."""

    def add(self, line: int, image: str, captions: Iterable[str], label: str | None = None) -> None:
        """Add captions of an image, or reject the row.

        Args:
            line: Line of the row in the table.
            image: Path of the image, relative to `folder`.
            captions: Captions of the image in this row.
            label: Class of the image, if it has one.
        """
        path = posixpath.normpath(image)
        captions = list(captions)
        if problem := self._problem(path, captions, label):
            return self.row_collector.reject_row(line, problem)
        number = self.image_numbers.setdefault(path, len(self.image_numbers))
        if label is not None:
            self.labels[path] = label
        for text in captions:
            self.row_collector.add({"caption": text.strip()}, line, document_id=number)
        return None

    def _problem(self, path: str, captions: list[str], label: str | None) -> str | None:
        if path not in self.image_numbers and not (self.folder / path).is_file():
            return f"there is no image {self.folder / path}"
        if not captions or not all(text.strip() for text in captions):
            return "a caption is empty"
        if label is not None and self.labels.get(path, label) != label:
            return f"{path} has the label {label!r} here and {self.labels[path]!r} in an earlier row"
        return None

    def to_captioned_images(self, source: str, options: ImageReadOptions) -> CaptionedImages:
        """Build a dataset of the images that can be read.

        Captions of the other images are left out.
        """
        texts = self.row_collector.to_texts(source)
        images = read_image_paths(self.folder, [list(self.image_numbers)], None, options, source).train
        numbers = np.array([self.image_numbers[images.name(i)] for i in range(len(images))], dtype=np.int64)
        row = np.full(len(self.image_numbers), -1, dtype=np.int64)
        row[numbers] = np.arange(len(images))
        assert texts.document_ids is not None
        thing = np.array(self.object_ids, dtype=np.int64)[numbers] if self.object_ids else np.arange(len(images))
        return CaptionedImages(self._labelled(images), texts, GroupedRows.from_group_ids(row[texts.document_ids], len(images)), thing)

    def _labelled(self, images: Images) -> Images:
        names = [self.labels.get(images.name(i)) for i in range(len(images))]
        if not self.labels:
            return images
        if None in names:
            raise UsageError(f"{images.source}: {images.name(names.index(None))} has no label; all images must have one, or none")
        (labels,), classes = encode_labels(np.array(names))
        return replace(images, labels=labels, classes=classes)


def read_caption_table(path: Path, options: ImageReadOptions, source: str, columns: str | None) -> CaptionedImages:
    """Read one table of images and captions."""
    listed = CaptionCollector(path.absolute().parent, RowCollector(options.on_error))
    listed.row_collector.start_file(path.name)
    collect_captions(TABLE_READERS[path.suffix.lower()](path, listed.row_collector), listed, path.name, columns)
    return listed.to_captioned_images(source, options)


def collect_captions(rows: Iterable[NumberedRow], collector: CaptionCollector, name: str, columns: str | None) -> None:
    """Add the rows of a table to the collector, and reject broken rows."""
    chosen: ColumnRoles | None = None
    for line, row in rows:
        chosen = chosen or resolve_caption_columns(columns, list(row), name)
        image, said = (row.get(column) for column in chosen.texts)
        captions: list[Any] = said if isinstance(said, list) else [said]
        label = None if chosen.label is None else row.get(chosen.label)
        if not isinstance(image, str) or not image.strip():
            collector.row_collector.reject_row(line, f"{chosen.texts[0]!r} is not the path of an image: {_short(image)}")
        elif wrong := [text for text in captions if not isinstance(text, str)]:
            collector.row_collector.reject_row(line, f"{chosen.texts[1]!r} is neither a text nor a list of texts: {_short(wrong[0])}")
        elif chosen.label is not None and label in (None, ""):
            collector.row_collector.reject_row(line, f"it has no {chosen.label!r}")
        else:
            collector.add(line, image, captions, None if label is None else str(label))


def resolve_caption_columns(columns: str | None, available: list[str], source: str) -> ColumnRoles:
    """Decide which column holds the image paths and which the captions.

    Args:
        columns: Value of --columns, such as image,caption; None looks for the usual names.
        available: Names of all columns.
        source: Name of the table in error messages.

    Raises:
        UsageError: The two columns are not named, or cannot be found.
    """
    if columns is not None:
        found = resolve_column_roles(columns, available, source)
        if len(found.texts) != 2:
            raise UsageError(f"--columns {columns}: name the column of images and that of captions, as in --columns image,caption")
        return found
    image, caption = (next((name for name in usual if name in available), None) for usual in (IMAGE_COLUMNS, CAPTION_COLUMNS))
    if image is None or caption is None:
        raise UsageError(
            f"{source} has the columns {', '.join(available)}: name the column of images and that of captions, "
            "as in --columns image,caption"
        )
    return ColumnRoles((image, caption), next((name for name in LABEL_COLUMNS if name in available), None))


def read_caption_folder(folder: Path, options: ImageReadOptions, source: str, columns: str | None) -> Splits:
    """Read train.* and test.* if such tables exist, else the only table.

    No test image may be a training image.
    """
    tables = sorted(f for f in folder.iterdir() if f.is_file() and f.suffix.lower() in TABLE_READERS and not f.name.startswith("."))
    by_name = {f.stem.lower(): f for f in tables}
    if "train" in by_name:
        train = read_caption_table(by_name["train"], options, source, columns)
        test = read_caption_table(by_name["test"], options, source, columns) if "test" in by_name else None
        return Splits(train, test) if test is None else _same_classes(train, test)
    if len(tables) != 1:
        found = f"{len(tables)} tables ({', '.join(f.name for f in tables[:5])})" if tables else "none"
        raise UsageError(
            f"{source} should hold one table of images and captions ({' '.join(TABLE_READERS)}), or train.* and test.*: found {found}"
        )
    return Splits(read_caption_table(tables[0], options, source, columns), None)


def _same_classes(train: CaptionedImages, test: CaptionedImages) -> Splits:
    """Give both splits the same numbering of the classes.

    Raises:
        UsageError: An image is in both splits, or the images of the splits differ in size or channels.
    """
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

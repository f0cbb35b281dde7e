"""What the rows of an index are: a table of names, labels and what shows them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from nearfar.core.errors import UsageError
from nearfar.data import Images

SCHEMA = pa.schema(
    [
        ("name", pa.large_string()),
        ("label", pa.large_string()),
        ("text", pa.large_string()),
        ("path", pa.large_binary()),  # bytes: not every file name is Unicode
        ("picture", pa.large_binary()),
    ]
)
LARGEST_PICTURE = 96
"""Pixels a side of a picture that is kept because there is no file to show."""
BATCH = 512


@dataclass(frozen=True, eq=False)
class Items:
    """Rows of an index, in its order. Where a column does not apply, its values are missing."""

    table: pa.Table

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        labels: Sequence[str | None] | None = None,
        texts: Sequence[str | None] | None = None,
        paths: Sequence[str | os.PathLike | None] | None = None,
        pictures: Sequence[bytes | None] | None = None,
    ) -> Items:
        """names     what a person calls each item, and what `delete` takes
        labels    names of classes
        texts     items that are texts
        paths     files that hold the items: images, sounds
        pictures  PNG files of images that have none"""
        columns = {
            "name": [_unicode(name) for name in names],
            "label": None if labels is None else [None if label is None else _unicode(label) for label in labels],
            "text": None if texts is None else [None if text is None else _unicode(text) for text in texts],
            "path": None if paths is None else [None if path is None else os.fsencode(path) for path in paths],
            "picture": pictures,
        }
        for column, values in columns.items():
            if values is not None and len(values) != len(names):
                raise UsageError(f"there are {len(names)} names of items, but {len(values)} values of {column!r}")
        arrays = [_column(columns[field.name], len(names), field.type) for field in SCHEMA]
        return cls(pa.Table.from_arrays(arrays, schema=SCHEMA))

    @classmethod
    def given(cls, items: Items | Sequence[str] | None, count: int, first: int = 0) -> Items:
        """Items, or names of them, or nothing: then they are called by their rows, counted from `first`."""
        if items is None:
            items = [f"row {first + i}" for i in range(count)]
        found = items if isinstance(items, Items) else cls.of(list(items))
        if len(found) != count:
            raise UsageError(f"there are {count} vectors, but {len(found)} items")
        return found

    def __len__(self) -> int:
        return self.table.num_rows

    def __add__(self, more: Items) -> Items:
        return Items(pa.concat_tables([self.table, more.table]).combine_chunks())

    def describe(self, rows: Sequence[int] | np.ndarray, called: Sequence[int] | np.ndarray | None = None) -> list[dict[str, Any]]:
        """name, row, label, and text or path where there is one. `called`: the rows' numbers, if they differ from the positions."""
        taken = self.table.select(["name", "label", "text", "path"]).take(pa.array(rows, pa.int64())).to_pylist()
        return [shown(found, int(row)) for found, row in zip(taken, rows if called is None else called, strict=True)]

    def pictures(self, rows: Sequence[int] | np.ndarray) -> list[bytes | None]:
        return self.table["picture"].take(pa.array(rows, pa.int64())).to_pylist()

    def rows_called(self, name: str) -> np.ndarray:
        """All rows of this name, deleted ones too."""
        return np.flatnonzero(
            pc.call_function("equal", [self.table["name"], pa.scalar(_unicode(name), pa.large_string())]).to_numpy(zero_copy_only=False)
        )

    def blanked(self, rows: Sequence[int] | np.ndarray) -> Items:
        """The same table in which nothing is known of some rows any more."""
        gone = np.zeros(len(self), dtype=bool)
        gone[np.asarray(rows, dtype=np.int64)] = True
        kept = pa.array(np.arange(len(self)), mask=gone)  # taken anew: a value that is only masked would still lie in the file
        return Items(self.table.take(kept))


def shown(found: dict[str, Any], row: int) -> dict[str, Any]:
    """A row of the table as users see it."""
    item: dict[str, Any] = {"name": found["name"], "row": row, "label": found["label"]}
    if found["text"] is not None:
        item["text"] = found["text"]
    if found["path"] is not None:
        item["path"] = os.fsdecode(found["path"])
    return item


def _column(values: Sequence[Any] | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if values is None else pa.array(values, kind)


def _unicode(text: str) -> str:
    """Halves of characters, as names of files may have them, written out: \\udce9."""
    return text.encode("utf-8", "backslashreplace").decode()


def items_of(parts: Sequence[Any], progress: Callable[[int, int], None] | None = None) -> Items:
    """The items of opened data of any modality, part after part. `progress` counts pictures that are drawn."""
    made = [_items_of_part(part, progress) for part in parts]
    return made[0] if len(made) == 1 else Items(pa.concat_tables([items.table for items in made]).combine_chunks())


def _items_of_part(part: Any, progress: Callable[[int, int], None] | None) -> Items:
    names = [part.name(i) for i in range(len(part))]
    labels, classes = getattr(part, "labels", None), getattr(part, "classes", ())
    named = None if labels is None or not classes else [classes[y] for y in np.asarray(labels).tolist()]
    paths = _files(str(getattr(part, "source", "")), names)
    texts = part.texts() if hasattr(part, "texts") else None
    pictures = _pictures(part, progress) if isinstance(part, Images) and paths is None else None
    return Items.of(names, named, texts, paths, pictures)


def _files(source: str, names: list[str]) -> list[Path] | None:
    """The files that the names are relative to the source, or to nothing; None if they are no files."""
    for folder in (Path(source).expanduser(), Path()):
        if names and all((folder / name).is_file() for name in (names[0], names[-1])):
            return [(folder / name).absolute() for name in names]
    return None


def _pictures(images: Images, progress: Callable[[int, int], None] | None) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(images), BATCH):
        pixels = images.read(np.arange(start, min(start + BATCH, len(images)))).cpu().numpy()
        found += [_png(image) for image in pixels]
        if progress:
            progress(len(found), len(images))
    return found


def _png(pixels: np.ndarray) -> bytes:
    """(c h w): one channel is grey, of more than three the first three count."""
    image = Image.fromarray(pixels[0] if len(pixels) < 3 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()

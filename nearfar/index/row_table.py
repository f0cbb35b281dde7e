"""Table that describes the rows of an index: names, labels, texts, paths and thumbnails."""

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

ROW_SCHEMA = pa.schema(
    [
        ("name", pa.large_string()),
        ("label", pa.large_string()),
        ("text", pa.large_string()),
        ("path", pa.large_binary()),  # bytes: not every file name is Unicode
        ("picture", pa.large_binary()),
    ]
)
THUMBNAIL_SIDE_PIXELS = 96
"""Side length in pixels of a thumbnail, stored for images without a file."""
IMAGES_PER_BATCH = 512


@dataclass(frozen=True, eq=False)
class RowTable:
    """Table of the rows of an index, in the same order.

    Values of a column that does not apply are missing.
    """

    arrow_table: pa.Table

    @classmethod
    def from_columns(
        cls,
        names: Sequence[str],
        labels: Sequence[str | None] | None = None,
        texts: Sequence[str | None] | None = None,
        paths: Sequence[str | os.PathLike | None] | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> RowTable:
        """Build a table from columns.

        Args:
            names: Names of the rows, for users and for `delete`.
            labels: Names of classes.
            texts: Texts, for rows that are texts.
            paths: Files of the rows, such as images and sounds.
            thumbnails: PNG files of images without a file.
        """
        columns = {
            "name": [_escape_surrogates(name) for name in names],
            "label": None if labels is None else [None if label is None else _escape_surrogates(label) for label in labels],
            "text": None if texts is None else [None if text is None else _escape_surrogates(text) for text in texts],
            "path": None if paths is None else [None if path is None else os.fsencode(path) for path in paths],
            "picture": thumbnails,
        }
        for column, values in columns.items():
            if values is not None and len(values) != len(names):
                raise UsageError(f"there are {len(names)} sample names, but {len(values)} values of {column!r}")
        arrays = [_build_column(columns[field.name], len(names), field.type) for field in ROW_SCHEMA]
        return cls(pa.Table.from_arrays(arrays, schema=ROW_SCHEMA))

    @classmethod
    def resolve(cls, row_table: RowTable | Sequence[str] | None, count: int, first_row: int = 0) -> RowTable:
        """Return a table of `count` rows from a table, names or None.

        None names the rows by their numbers, counted from `first_row`.
        """
        if row_table is None:
            row_table = [f"row {first_row + i}" for i in range(count)]
        found = row_table if isinstance(row_table, RowTable) else cls.from_columns(list(row_table))
        if len(found) != count:
            raise UsageError(f"there are {count} vectors, but {len(found)} samples")
        return found

    def __len__(self) -> int:
        return self.arrow_table.num_rows

    def __add__(self, more: RowTable) -> RowTable:
        return RowTable(pa.concat_tables([self.arrow_table, more.arrow_table]).combine_chunks())

    def describe(self, rows: Sequence[int] | np.ndarray, row_numbers: Sequence[int] | np.ndarray | None = None) -> list[dict[str, Any]]:
        """Describe rows as dict(name, row, label), with text or path.

        `row_numbers` holds the numbers of the rows, if they differ from the positions.
        """
        taken = self.arrow_table.select(["name", "label", "text", "path"]).take(pa.array(rows, pa.int64())).to_pylist()
        return [format_row(found, int(row)) for found, row in zip(taken, rows if row_numbers is None else row_numbers, strict=True)]

    def read_thumbnails(self, rows: Sequence[int] | np.ndarray) -> list[bytes | None]:
        """Return the thumbnails of rows as PNG files, None where there is none."""
        return self.arrow_table["picture"].take(pa.array(rows, pa.int64())).to_pylist()

    def find_rows_by_name(self, name: str) -> np.ndarray:
        """Return all rows with this name, deleted ones included."""
        return np.flatnonzero(
            pc.call_function("equal", [self.arrow_table["name"], pa.scalar(_escape_surrogates(name), pa.large_string())]).to_numpy(
                zero_copy_only=False
            )
        )

    def blank_rows(self, rows: Sequence[int] | np.ndarray) -> RowTable:
        """Return a copy of the table with all values of some rows removed."""
        gone = np.zeros(len(self), dtype=bool)
        gone[np.asarray(rows, dtype=np.int64)] = True
        # Copied: a value that is only masked would stay in the file.
        kept = pa.array(np.arange(len(self)), mask=gone)
        return RowTable(self.arrow_table.take(kept))


def format_row(record: dict[str, Any], row: int) -> dict[str, Any]:
    """Format a record of the table for users."""
    item: dict[str, Any] = {"name": record["name"], "row": row, "label": record["label"]}
    if record["text"] is not None:
        item["text"] = record["text"]
    if record["path"] is not None:
        item["path"] = os.fsdecode(record["path"])
    return item


def _build_column(values: Sequence[Any] | None, count: int, arrow_type: pa.DataType) -> pa.Array:
    return pa.nulls(count, arrow_type) if values is None else pa.array(values, arrow_type)


def _escape_surrogates(text: str) -> str:
    r"""Escape surrogates, which may occur in file names, as in \udce9."""
    return text.encode("utf-8", "backslashreplace").decode()


def build_row_table(parts: Sequence[Any], progress: Callable[[int, int], None] | None = None) -> RowTable:
    """Build the table of loaded data of any modality, part after part.

    `progress` counts thumbnails.
    """
    made = [_build_part_table(part, progress) for part in parts]
    return made[0] if len(made) == 1 else RowTable(pa.concat_tables([items.arrow_table for items in made]).combine_chunks())


def _build_part_table(part: Any, progress: Callable[[int, int], None] | None) -> RowTable:
    names = [part.name(i) for i in range(len(part))]
    labels, classes = getattr(part, "labels", None), getattr(part, "classes", ())
    named = None if labels is None or not classes else [classes[y] for y in np.asarray(labels).tolist()]
    paths = _find_files(str(getattr(part, "source", "")), names)
    texts = part.get_strings() if hasattr(part, "get_strings") else None
    pictures = _render_thumbnails(part, progress) if isinstance(part, Images) and paths is None else None
    return RowTable.from_columns(names, named, texts, paths, pictures)


def _find_files(source: str, names: list[str]) -> list[Path] | None:
    """Return the files of the names, relative to the source or to the working directory.

    Returns None if the names are not files.
    """
    for folder in (Path(source).expanduser(), Path()):
        if names and all((folder / name).is_file() for name in (names[0], names[-1])):
            return [(folder / name).absolute() for name in names]
    return None


def _render_thumbnails(images: Images, progress: Callable[[int, int], None] | None) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(images), IMAGES_PER_BATCH):
        pixels = images.read(np.arange(start, min(start + IMAGES_PER_BATCH, len(images)))).cpu().numpy()
        found += [_encode_png(image) for image in pixels]
        if progress:
            progress(len(found), len(images))
    return found


def _encode_png(pixels: np.ndarray) -> bytes:
    """Encode an image (c, h, w) as a PNG thumbnail.

    One channel is gray. Only the first three of more than three channels are used.
    """
    image = Image.fromarray(pixels[0] if len(pixels) < 3 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    image.thumbnail((THUMBNAIL_SIDE_PIXELS, THUMBNAIL_SIDE_PIXELS))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()

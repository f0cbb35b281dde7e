"""Reader of .csv and .tsv files of numbers, with or without a header line.

Lines are parsed in batches into float32.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from nearfar.core.errors import UsageError
from nearfar.data.common.numbered_lines import read_numbered_lines
from nearfar.data.common.text_tables import COLUMN_SEPARATORS
from nearfar.data.table.dataset import make_column_names
from nearfar.data.table.table_columns import (
    RowRejections,
    TableColumns,
    TableReadOptions,
    as_float32,
    build_text_column_error,
    choose_table_columns,
    find_finite_rows,
    is_missing,
    parse_number,
)

LINES_PER_BATCH = 8192
"""Number of lines that are parsed at a time."""
NumberedCells = tuple[int, list[str]]
"""Line number of a row, and its cells."""


@dataclass
class SeparatedRows:
    """Rows of a text file: values, labels and line numbers of the rows that were kept."""

    file: str
    columns: TableColumns
    rejections: RowRejections
    blocks: list[Float32[np.ndarray, "_ f"]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)

    def add(self, batch: list[NumberedCells]) -> None:
        """Parse the lines of a batch, which all have a cell for each column."""
        values = _parse_cells([[cells[j] for j in self.columns.features] for _, cells in batch])
        finite = find_finite_rows(
            values,
            self.columns,
            self.rejections,
            place=lambda i: f"{self.file}, line {batch[i][0]}",
            cell=lambda i, j: batch[i][1][self.columns.features[j]],
        )
        self.blocks.append(values[finite])
        kept = [batch[i] for i in np.flatnonzero(finite)]
        self.line_numbers += [line for line, _ in kept]
        if self.columns.label is not None:
            self.labels += [cells[self.columns.label].strip() for _, cells in kept]

    @property
    def values(self) -> Float32[np.ndarray, "n f"]:
        """Return the values of all rows."""
        return np.concatenate([np.empty((0, len(self.columns.names)), dtype=np.float32), *self.blocks])


def read_separated_rows(path: Path, options: TableReadOptions) -> SeparatedRows:
    """Read the rows of a .csv or .tsv file.

    Raises:
        UsageError: The file has no rows, or a column of features holds text.
        BrokenRow: A row has missing values or values that are not numbers, and `on_error` is "stop".
    """
    names, lines = _open_lines(path)
    columns, rejections = choose_table_columns(names, options, str(path)), RowRejections(options.on_error)
    found = SeparatedRows(path.name, columns, rejections)
    while batch := list(islice(lines, LINES_PER_BATCH)):
        complete = _drop_incomplete_lines(path, batch, names, columns, rejections)
        if complete and not found.blocks:
            _check_first_row(path, complete[0], names, columns)
        found.add(complete)
    return found


def begins_with_numbers(path: Path) -> bool:
    """Return True if the first row has numbers in all columns of features."""
    names, lines = _open_lines(path)
    columns = choose_table_columns(names, TableReadOptions(), str(path))
    _, cells = next(lines, (0, []))
    return len(cells) == len(names) and all(is_missing(cells[j]) or parse_number(cells[j]) is not None for j in columns.features)


def _open_lines(path: Path) -> tuple[tuple[str, ...], Iterator[NumberedCells]]:
    """Return the names of the columns, and the lines below the header."""
    lines = _iterate_cells(path)
    first = list(islice(lines, 2))
    if not first:
        raise UsageError(f"there are no rows in {path}")
    _check_separator(path, first[0][1])
    if _has_header(first):
        return _read_header(path, first[0][1]), chain(first[1:], lines)
    return make_column_names(len(first[0][1])), chain(first, lines)


def _iterate_cells(path: Path) -> Iterator[NumberedCells]:
    """Yield line number and cells of each line that is not empty."""
    tabs = path.suffix.lower() == ".tsv"
    lines = (line + "\n" for _, line in read_numbered_lines(path))
    reader = csv.reader(lines, delimiter="\t" if tabs else ",", quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL, strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as e:
        raise UsageError(f"{path}, line {reader.line_num}: {e}") from e


def _check_separator(path: Path, head: list[str]) -> None:
    if len(head) == 1 and (other := next((mark for mark in COLUMN_SEPARATORS if mark in head[0]), None)):
        expected = "a tab" if path.suffix.lower() == ".tsv" else "','"
        raise UsageError(
            f"{path} has one column, with {other!r} in its first line: columns of a {path.suffix} are separated by {expected}. "
            "Write the file again"
        )


def _has_header(first: list[NumberedCells]) -> bool:
    """Return True if the first line holds names.

    That is the case if none of its cells is a number, or if one of them is a text above a number.
    """
    head, below = first[0][1], first[-1][1]
    numbers = [parse_number(cell) is not None for cell in head]
    if not any(numbers):
        return True
    texts = [not number and not is_missing(cell) for number, cell in zip(numbers, head, strict=True)]
    return any(text and parse_number(cell) is not None for text, cell in zip(texts, below, strict=False))


def _read_header(path: Path, head: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() or f"x{j + 1}" for j, name in enumerate(head))
    for j, name in enumerate(names):
        if name in names[:j]:
            raise UsageError(f"{path}: two columns have the name {name!r} in its first line")
    return names


def _check_first_row(path: Path, row: NumberedCells, names: tuple[str, ...], columns: TableColumns) -> None:
    """Raise `UsageError` if a column of features begins with a text."""
    line, cells = row
    for j in columns.features:
        if parse_number(cells[j]) is None and not is_missing(cells[j]):
            numeric = [names[k] for k in columns.features if parse_number(cells[k]) is not None]
            raise build_text_column_error(f"{path}, line {line}", names[j], cells[j], numeric)


def _drop_incomplete_lines(
    path: Path, batch: list[NumberedCells], names: tuple[str, ...], columns: TableColumns, rejections: RowRejections
) -> list[NumberedCells]:
    """Reject lines with another number of cells, and lines without a label."""
    kept = []
    for line, cells in batch:
        if len(cells) != len(names):
            rejections.add(f"{path.name}, line {line}", f"{len(cells)} values, but {len(names)} columns")
        elif columns.label is not None and is_missing(cells[columns.label]):
            rejections.add(f"{path.name}, line {line}", f"it has no label in the column {names[columns.label]!r}")
        else:
            kept.append((line, cells))
    return kept


def _parse_cells(cells: list[list[str]]) -> Float[np.ndarray, "n f"]:
    """Convert cells to float32, NaN where a cell is not a number."""
    try:
        return as_float32(np.array(cells, dtype=np.float64).reshape(len(cells), -1))
    except ValueError:
        numbers = [[np.nan if (number := parse_number(cell)) is None else number for cell in row] for row in cells]
        return as_float32(np.array(numbers))

"""Readers of tables of numbers: text files, Parquet, NumPy files, arrays and columns.

Parquet and text files are read in batches into float32. A .npy file is memory-mapped, so it may be larger
than memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.arrays import encode_labels
from nearfar.data.common.splits import Splits
from nearfar.data.images.readers import read_numpy_arrays
from nearfar.data.table.dataset import TableRows, TableStore, iterate_blocks, make_column_names
from nearfar.data.table.separated_rows import read_separated_rows
from nearfar.data.table.table_columns import (
    RowRejections,
    TableColumns,
    TableReadOptions,
    as_float32,
    as_table_labels,
    build_text_column_error,
    choose_table_columns,
    find_finite_rows,
    is_missing,
    parse_number,
)

PARQUET_ROWS_PER_BATCH = 8192
"""Number of rows of a Parquet file that are converted at a time."""
NPZ_FEATURES = {"train": ("x", "x_train"), "test": ("x_test",)}
NPZ_LABELS = {"train": ("y", "y_train"), "test": ("y_test",)}
"""Names of the arrays of an .npz file, in any case. The first that exists is used."""


def read_separated_table(path: Path, options: TableReadOptions, source: str) -> Splits:
    """Read a .csv or .tsv file, with or without a header line."""
    found = read_separated_rows(path, options)
    values = found.values
    store = TableStore(values, found.columns.names, found.file, np.array(found.line_numbers, dtype=np.int64))
    labels = None if found.columns.label is None else as_table_labels(found.labels, source)
    return build_table_splits(source, CheckedTable(store, np.arange(len(values)), labels, tuple(found.rejections.skipped)))


def read_parquet_table(path: Path, options: TableReadOptions, source: str) -> Splits:
    """Read a Parquet file."""
    with _open_parquet(path) as file:
        names, numeric = tuple(file.schema_arrow.names), _list_numeric_columns(file)
        columns = choose_table_columns(names, options, source)
        values, labels, start = np.empty((file.metadata.num_rows, len(columns.names)), dtype=np.float32), [], 0
        for batch in file.iter_batches(PARQUET_ROWS_PER_BATCH):
            if text := next((name for name in columns.names if name not in numeric), None):
                cells = enumerate(batch.column(names.index(text)).to_pylist(), start)
                row, example = next((found for found in cells if found[1] is not None), (start, None))
                raise build_text_column_error(f"{path}, row {row}", text, example, [n for n in columns.names if n in numeric])
            for j, position in enumerate(columns.features):
                numbers = batch.column(position).cast("float64", safe=False).to_numpy(zero_copy_only=False)
                values[start : start + len(batch), j] = as_float32(numbers)
            labels += [] if columns.label is None else batch.column(columns.label).to_pylist()
            start += len(batch)
    return build_table_splits(source, check_table(values, columns, None if columns.label is None else labels, options.on_error, source))


def has_numeric_parquet_columns(path: Path) -> bool:
    """Return True if all columns of features of a Parquet file hold numbers."""
    with _open_parquet(path) as file:
        columns = choose_table_columns(tuple(file.schema_arrow.names), TableReadOptions(), str(path))
        return set(columns.names) <= _list_numeric_columns(file)


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file. Errors of pyarrow within the block become `UsageError`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as e:
        raise UsageError(f"{path} needs the package pyarrow, which is not installed") from e
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from e


def _list_numeric_columns(file: Any) -> set[str]:
    from pyarrow import types

    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    schema = file.schema_arrow
    return {name for name, kind in zip(schema.names, schema.types, strict=True) if any(check(kind) for check in numeric)}


def read_numpy_table(path: Path, options: TableReadOptions, source: str) -> Splits:
    """Read a .npy file of numbers (n, f), or an .npz file.

    An .npz file has x or x_train, and optionally y or y_train, x_test and y_test.
    """
    if path.suffix.lower() == ".npy":
        return build_table_splits(source, check_array(_map_array(path), None, options, str(path)))
    arrays = {name.lower(): array for name, array in read_numpy_arrays(path).items()}
    found = {}
    for part in ("train", "test"):
        values, labels = (next((arrays[n] for n in names[part] if n in arrays), None) for names in (NPZ_FEATURES, NPZ_LABELS))
        if values is not None:
            found[part] = check_array(values, labels, options, str(path))
    if "train" not in found:
        raise UsageError(f"{path} has no array x of rows, it has {', '.join(arrays) or 'none'}")
    return build_table_splits(source, found["train"], found.get("test"))


def _map_array(path: Path) -> np.ndarray:
    """Open a .npy file without reading its values."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        objects = "Python objects" in str(e) or "pickle" in str(e)
        raise UsageError(f"cannot read {path}: {'it does not hold plain numbers' if objects else e}") from e


def read_columns(columns: Mapping[Any, Any], options: TableReadOptions, source: str) -> Splits:
    """Read a mapping of names to columns of equal length."""
    named = {str(name): np.asarray(values) for name, values in columns.items()}
    lengths = {name: len(values) if values.ndim == 1 else values.shape for name, values in named.items()}
    if len(set(lengths.values())) != 1 or any(values.ndim != 1 for values in named.values()):
        raise UsageError(f"the columns of {source} differ in length: {', '.join(f'{k} {v}' for k, v in lengths.items())}")
    chosen = choose_table_columns(list(named), options, source)
    numbers = {name: _as_numbers(named[name]) for name in chosen.names}
    for name, column in numbers.items():
        if column is None:
            numeric = [other for other, values in numbers.items() if values is not None]
            row, text = next(
                (i, cell) for i, cell in enumerate(named[name].tolist()) if isinstance(cell, str) or parse_number(cell) is None
            )
            raise build_text_column_error(f"{source}, row {row}", name, text, numeric)
    values = np.stack([as_float32(column) for column in numbers.values() if column is not None], axis=1)
    labels = None if chosen.label is None else list(named.values())[chosen.label]
    return build_table_splits(source, check_table(values, chosen, labels, options.on_error, source))


def _as_numbers(column: np.ndarray) -> np.ndarray | None:
    """Return a column as float64 with NaN for None. Return None if it holds texts."""
    if column.dtype.kind not in "biufO":
        return None
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class CheckedTable:
    """Table whose broken rows are left out. Labels are not encoded yet."""

    store: TableStore
    ids: Int64[np.ndarray, " m"]
    """Rows of the store without broken values."""
    labels: Shaped[np.ndarray, " m"] | None
    skipped: tuple[str, ...]


def check_array(values: np.ndarray | Tensor, labels: Any, options: TableReadOptions, description: str) -> CheckedTable:
    """Check an array of numbers (n, f) with optional labels (n,).

    A memory-mapped array is not copied.

    Raises:
        UsageError: The array has another shape or type.
    """
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    if array.ndim != 2 or not array.size:
        raise UsageError(f"{description} has the shape {array.shape}; a table has the shape (n, features), with at least one of each")
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{description} holds {array.dtype}; features must be numbers. Columns of categories are not one-hot encoded")
    columns = choose_table_columns(make_column_names(array.shape[1]), options, description)
    if labels is None and columns.label is not None:
        labels = np.array(array[:, columns.label])
    if columns.features != tuple(range(array.shape[1])):
        array = np.array(array[:, columns.features])
    if not isinstance(array, np.memmap):
        array = as_float32(array)
    return check_table(array, columns, labels, options.on_error, description)


def check_table(values: np.ndarray, columns: TableColumns, labels: Any, on_error: str, description: str) -> CheckedTable:
    """Reject the rows with missing or infinite values, and those without a label.

    Args:
        values: Features, (n, f).
        columns: Names of the features.
        labels: Labels of all rows, (n,), or None.
        on_error: "stop" at the first broken row, or "skip" all of them.
        description: Name of the table in error messages.
    """
    given = None if labels is None else _as_label_column(labels, len(values), description)
    rejections, kept = RowRejections(on_error), []
    for block in iterate_blocks(np.arange(len(values)), len(columns.names)):
        finite = find_finite_rows(
            as_float32(np.asarray(values[block])),
            columns,
            rejections,
            place=lambda i, block=block: f"{description}, row {block[i]}",
            cell=lambda i, j, block=block: values[block[i], j].item(),
        )
        kept += [i for i in block[finite].tolist() if given is None or _has_label(given[i], i, rejections, description)]
    store = TableStore(values, columns.names)
    known = None if given is None else as_table_labels([given[i] for i in kept], description)
    return CheckedTable(store, np.array(kept, dtype=np.int64), known, tuple(rejections.skipped))


def _as_label_column(labels: Any, n: int, description: str) -> list[Any]:
    found = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if found.shape not in ((n,), (n, 1)):
        raise UsageError(f"{description} has {n:,} rows, and labels of the shape {found.shape}; expected one label for each row: ({n},)")
    return found.reshape(n).tolist()


def _has_label(label: Any, row: int, rejections: RowRejections, description: str) -> bool:
    if is_missing(label):
        rejections.add(f"{description}, row {row}", "it has no label")
        return False
    return True


def build_table_splits(source: str, train: CheckedTable, test: CheckedTable | None = None) -> Splits:
    """Build datasets that share their classes.

    There is a test split only if the data bring one.
    """
    tables = [train] if test is None else [train, test]
    coded, classes = encode_labels(*(table.labels for table in tables))
    parts = [TableRows(table.store, table.ids, labels, classes, source, table.skipped) for table, labels in zip(tables, coded, strict=True)]
    return Splits(parts[0], None if test is None else parts[1])

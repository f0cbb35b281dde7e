"""Loading of tables of numbers from a user's data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.table.dataset import TableRows, TableStore
from nearfar.data.table.readers import (
    build_table_splits,
    check_array,
    read_columns,
    read_numpy_table,
    read_parquet_table,
    read_separated_table,
)
from nearfar.data.table.table_columns import TableReadOptions, as_float32, choose_table_columns

BUNDLED_TABLES = {"iris": "load_iris", "wine": "load_wine", "breast-cancer": "load_breast_cancer", "digits-table": "load_digits"}
"""Functions of `sklearn.datasets` that load the bundled tables, by name of the table."""
TABLE_FILES: dict[str, Callable[[Path, TableReadOptions, str], Splits]] = {
    ".csv": read_separated_table,
    ".tsv": read_separated_table,
    ".parquet": read_parquet_table,
    ".npy": read_numpy_table,
    ".npz": read_numpy_table,
}
"""Readers by file extension."""


def load_tables(
    spec: Any, *, seed: int = 0, columns: str | None = None, on_error: str = "stop", test_ids: Sequence[int] | np.ndarray | None = None
) -> Splits:
    """Load a table as a training and a test split.

    Args:
        spec: Source of the rows: 'iris', 'wine', 'breast-cancer' or 'digits-table'; a .csv, .tsv, .parquet,
            .npy or .npz file; an array or tensor (n, features); a pair (array, labels); a mapping of names to
            columns; a list of such mappings, one for each row.
        seed: Random seed of the split if the data bring none. The test split is one in five of each class.
        columns: Columns of features, and `label=NAME`. None: all columns are features, except one with a
            usual name of labels, such as label or class.
        on_error: "stop" at a broken row with an error that names it, or "skip" it.
        test_ids: Test rows stored by an earlier run. An empty list means no test split.

    Raises:
        UsageError: The data cannot be read, or have fewer than two training rows.
    """
    found = load_all_tables(spec, TableReadOptions(columns, on_error))
    return split_table(found, seed, test_ids)


def split_table(found: Splits, seed: int, test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Split a loaded table into a training and a test split."""
    n = len(found.train)
    if n < 2:
        raise UsageError(f"{found.train.source} has {n} row{'' if n == 1 else 's'} to learn from; at least 2 are needed")
    return split_train_test(found, seed, test_ids)


def load_all_tables(spec: Any, options: TableReadOptions) -> Splits:
    """Load all rows. The result has a test split only if the data bring one."""
    if options.on_error not in ("stop", "skip"):
        raise UsageError(f"--on-error must be 'stop' or 'skip', got {options.on_error!r}")
    if isinstance(spec, TableRows):
        return Splits(_match_rows(spec, options), None)
    if isinstance(spec, str) and spec in BUNDLED_TABLES:
        return Splits(_match_rows(_load_bundled(spec), options), None)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), options)
    if isinstance(spec, Mapping):
        return read_columns(spec, options, f"a mapping of {len(spec)} columns")
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(row, Mapping) for row in spec):
        return read_columns(_collect_columns(spec), options, f"a list of {len(spec)} rows")
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], (np.ndarray, Tensor)):
        return _read_array(*spec, options)
    if isinstance(spec, (np.ndarray, Tensor)):
        return _read_array(spec, None, options)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(row, (list, tuple)) for row in spec):
        return _read_array(_stack_rows(spec), None, options)
    raise UsageError(
        f"cannot read rows from a {type(spec).__name__}: give a name, a path, an array (n, features), a pair (array, labels) "
        "or a mapping of names to columns"
    )


def _read_path(text: str, options: TableReadOptions) -> Splits:
    path = Path(text).expanduser()
    if not text:
        raise UsageError(f"no data given: give --data 'iris', or a file that ends in {' or '.join(TABLE_FILES)}")
    if not path.exists():
        raise build_missing_data_error(text, BUNDLED_TABLES)
    if read := TABLE_FILES.get(path.suffix.lower()):
        return read(path, options, text)
    raise UsageError(f"cannot read rows from {path}: give a file that ends in {' or '.join(TABLE_FILES)}")


def _read_array(values: np.ndarray | Tensor, labels: Any, options: TableReadOptions) -> Splits:
    source = f"{'tensor' if isinstance(values, Tensor) else 'array'} of shape {tuple(values.shape)}"
    return build_table_splits(source, check_array(values, labels, options, f"the {source}"))


def _stack_rows(rows: Sequence[Sequence[Any]]) -> np.ndarray:
    if len({len(row) for row in rows}) > 1:
        raise UsageError(f"the rows have different lengths: {', '.join(map(str, sorted({len(row) for row in rows})))}")
    return np.array(rows)


def _collect_columns(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """Convert rows with named values to columns."""
    for i, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise UsageError(f"row {i} has the columns {', '.join(map(str, row))}, row 0 has {', '.join(map(str, rows[0]))}")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _load_bundled(name: str) -> TableRows:
    """Load one of scikit-learn's tables."""
    from sklearn import datasets  # slow import (one second) that only these names need

    table: Any = getattr(datasets, BUNDLED_TABLES[name])()
    store = TableStore(as_float32(table.data), tuple(map(str, table.feature_names)))
    return TableRows(store, np.arange(len(store)), table.target.astype(np.int64), tuple(map(str, table.target_names)), name)


def _match_rows(data: TableRows, options: TableReadOptions) -> TableRows:
    """Return a loaded table with the columns that the options name."""
    if not options.columns and options.model_columns in ((), data.columns):
        return data
    chosen = choose_table_columns(data.columns, options, data.source)
    if chosen.label is not None:
        raise UsageError(f"{data.source} has labels already: leave out --columns label=…")
    store = replace(data.store, values=data.store.values[:, chosen.features], columns=chosen.names)
    return replace(data, store=store)

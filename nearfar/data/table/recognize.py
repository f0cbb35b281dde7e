"""Recognition of tables of numbers, without reading whole files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nearfar.core.errors import NearfarError
from nearfar.data.table.load import BUNDLED_TABLES, load_all_tables
from nearfar.data.table.readers import has_numeric_parquet_columns
from nearfar.data.table.separated_rows import begins_with_numbers
from nearfar.data.table.table_columns import TableReadOptions


def looks_like_table(data: Any) -> bool:
    """Return True for bundled tables, files of numbers, and rows of numbers in memory.

    A file of numbers is a .csv, .tsv or .parquet whose features are numbers, or a .npy with two axes.
    """
    if isinstance(data, (np.ndarray, Tensor)):
        return data.ndim == 2
    if isinstance(data, tuple) and len(data) == 2:
        return isinstance(data[0], (np.ndarray, Tensor)) and data[0].ndim == 2
    if isinstance(data, Mapping):
        return _can_be_loaded(data)
    if not isinstance(data, (str, os.PathLike)):
        return False
    path = Path(os.path.expanduser(data))
    return str(data) in BUNDLED_TABLES or (path.is_file() and _holds_numbers(path))


def _holds_numbers(path: Path) -> bool:
    suffix = path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            return begins_with_numbers(path)
        if suffix == ".parquet":
            return has_numeric_parquet_columns(path)
        return suffix == ".npy" and np.load(path, mmap_mode="r", allow_pickle=False).ndim == 2
    except (NearfarError, OSError, ValueError):
        return False


def _can_be_loaded(data: Mapping[Any, Any]) -> bool:
    try:
        load_all_tables(data, TableReadOptions(on_error="skip"))
    except NearfarError:
        return False
    return True

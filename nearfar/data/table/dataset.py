"""Datasets of rows of numbers.

A table has one column for each feature. It is held in memory or in a memory-mapped file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, Shaped
from torch import Tensor

from nearfar.data.common.dataset import Ids, Samples, as_index_array
from nearfar.data.common.image_stores import hash_bytes

VALUES_PER_BLOCK = 1 << 22
"""Number of values that are read at a time from large tables: 16 MiB as float32."""
SHOWN_COLUMNS = 6
"""Number of columns in the text of a row. Further columns become an ellipsis."""


@dataclass(frozen=True, eq=False)
class TableStore:
    """All rows of a source as one array of numbers."""

    values: Shaped[np.ndarray, "n f"]
    """Finite numbers of any type. `read` converts them to float32."""
    columns: tuple[str, ...]
    """Names of the features."""
    file: str = ""
    """Name of the text file, if the rows come from one."""
    line_numbers: Int64[np.ndarray, " n"] | None = None
    """Line of each row in the text file."""

    def __len__(self) -> int:
        return len(self.values)

    def name(self, row: int) -> str:
        """Return the file and line of a row, or its number."""
        return f"row {row}" if self.line_numbers is None else f"{self.file}, line {self.line_numbers[row]}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n f"]:
        """Return a float32 copy of some rows."""
        return np.array(self.values[rows], dtype=np.float32, order="C")

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the shape and of all values as float32."""
        rows = np.arange(len(self))
        blocks = (hash_bytes(self.read(block).reshape(-1).data).encode() for block in iterate_blocks(rows, len(self.columns)))
        return hash_bytes(str(self.values.shape).encode(), *blocks)


@dataclass(frozen=True, eq=False)
class TableRows(Samples):
    """Subset of the rows of a store.

    Values are returned as they are in the source. The encoder standardizes them.
    """

    store: TableStore

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the features."""
        return self.store.columns

    @property
    def num_features(self) -> int:
        """Return the number of features."""
        return len(self.store.columns)

    def read(self, ids: Ids) -> Float32[Tensor, "n f"]:
        """Return some rows as float32, (n, f)."""
        return torch.from_numpy(self.store.read(self.ids[as_index_array(ids)]))

    def read_cells(self, ids: Int64[np.ndarray, "n f"]) -> Float32[Tensor, "n f"]:
        """Return cells of different samples for each column.

        Entry (i, j) is the value of sample `ids[i, j]` in column j.

        Args:
            ids: Positions among the samples of this dataset, (n, f).
        """
        cells = self.store.values[self.ids[ids], np.arange(self.num_features)]
        return torch.from_numpy(np.array(cells, dtype=np.float32))

    def format_row(self, i: int) -> str:
        """Return a sample as text, such as "width = 1.2, height = 3.4"."""
        return format_values(self.read([i])[0].tolist(), self.columns)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes from which recipes and encoders are built.

        Mean and std are those of each column. The standard deviation of a constant column is 0.
        """
        mean, std = self._statistics
        return {
            "n": len(self),
            "features": self.num_features,
            "columns": list(self.columns),
            "mean": mean.tolist(),
            "std": std.tolist(),
            "classes": len(self.classes),
        }

    @cached_property
    def _statistics(self) -> tuple[Float[np.ndarray, " f"], Float[np.ndarray, " f"]]:
        """Compute mean and standard deviation of each column in float64, in one pass.

        Blocks are merged as by Chan, Golub and LeVeque (1983), which is stable for columns far from 0.
        """
        count, mean, squares = 0, np.zeros(self.num_features), np.zeros(self.num_features)
        for block in iterate_blocks(self.ids, self.num_features):
            values = self.store.read(block).astype(np.float64)
            step, share = values.mean(0) - mean, len(values) / (count + len(values))
            squares += ((values - values.mean(0)) ** 2).sum(0) + step**2 * count * share
            mean, count = mean + step * share, count + len(values)
        return mean, np.sqrt(squares / max(count, 1))


def iterate_blocks(rows: Int64[np.ndarray, " n"], num_features: int) -> Iterator[Int64[np.ndarray, " m"]]:
    """Split row numbers into blocks that fit into little memory."""
    size = max(1, VALUES_PER_BLOCK // max(num_features, 1))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def make_column_names(num_features: int) -> tuple[str, ...]:
    """Return the names of columns without a header: x1, x2, …"""
    return tuple(f"x{j + 1}" for j in range(num_features))


def format_values(values: list[float], columns: tuple[str, ...]) -> str:
    """Return the values of a row as text, such as "width = 1.2, height = 3.4"."""
    shown = [f"{name} = {_format_number(value)}" for name, value in zip(columns, values, strict=True)][:SHOWN_COLUMNS]
    return ", ".join([*shown, "…"] if len(columns) > SHOWN_COLUMNS else shown)


def _format_number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)

"""Interface of all indexes, for every kind of storage."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64

from nearfar.core.errors import UsageError
from nearfar.index.distance_metric import Metric, prepare_vectors
from nearfar.index.model_identity import ModelIdentity
from nearfar.index.row_table import RowTable

ROW_PATTERN = re.compile(r"(?:row:)?(\d+)")
NAME_PREFIX = "name:"
"""Prefix of a name that could be mistaken for something else."""


@dataclass(frozen=True)
class Hits:
    """Nearest rows of each query, the nearest first.

    With cosine and dot, larger scores are nearer. With l2, smaller scores are nearer.
    """

    scores: Float32[np.ndarray, "q k"]
    rows: Int64[np.ndarray, "q k"]


class Index(ABC):
    """Collection of vectors with names.

    A row keeps its number forever. The number of a deleted row is never used again.
    """

    location: str
    """Folder or store, as the user named it."""
    index_type: str
    """Type of the index: exact, hnsw or ivf."""
    metric: Metric
    dim: int
    model_identity: ModelIdentity | None
    """Model that encoded the vectors, None if unknown."""
    next_row: int
    """Number of rows ever added, deleted ones included. All row numbers are smaller."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows that are not deleted."""

    def search(self, queries: Float[np.ndarray, "q d"], k: int = 10) -> Hits:
        """Return the k nearest rows of each query.

        Returns all rows if there are fewer than k.

        Args:
            queries: Query vectors (q, d).
            k: Number of neighbors.
        """
        if k < 1:
            raise UsageError(f"--k must be at least 1, got {k}")
        return self._search(prepare_vectors(queries, self.metric, self.dim, "queries"), min(k, len(self)))

    @abstractmethod
    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits: ...

    def list_rows(self) -> Int64[np.ndarray, " n"]:
        """Return the numbers of all rows that are not deleted."""
        return np.setdiff1d(np.arange(self.next_row), getattr(self, "deleted_rows", np.zeros(0, np.int64)))

    @abstractmethod
    def describe_rows(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        """Describe rows as dict(name, row, label).

        The dict also holds the text or path of a row that has one.
        """

    @abstractmethod
    def read_thumbnails(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        """Return PNG files of rows that are images without a file."""

    @abstractmethod
    def read_vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """Return the vectors of rows. They have length 1 if the metric is cosine."""

    def add(self, vectors: Float[np.ndarray, "n d"], row_table: RowTable | Sequence[str] | None = None) -> Int64[np.ndarray, " n"]:
        """Add vectors and store them. Returns their rows.

        Args:
            vectors: Vectors (n, d).
            row_table: `RowTable` or names of the rows. None names them by their numbers.
        """
        fresh = prepare_vectors(vectors, self.metric, self.dim)
        rows = np.arange(self.next_row, self.next_row + len(fresh))
        named = RowTable.resolve(row_table, len(fresh), self.next_row)
        if len(fresh):
            self._add(fresh, named, rows)
        return rows

    @abstractmethod
    def _add(self, vectors: Float32[np.ndarray, "n d"], row_table: RowTable, rows: Int64[np.ndarray, " n"]) -> None: ...

    def delete(self, rows_or_names: int | str | Sequence[int | str] | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " m"]:
        """Delete rows by number or name. Returns their numbers.

        Numbers are 17, "17" or "row:17". Names are "cat.png" or "name:17".
        """
        asked = [rows_or_names] if isinstance(rows_or_names, (int, str)) else list(rows_or_names)
        rows = np.unique(np.array([self.resolve_row(one) for one in asked], dtype=np.int64))
        if len(rows):
            self._delete(rows)
        return rows

    @abstractmethod
    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None: ...

    def resolve_row(self, row_or_name: int | str | np.integer) -> int:
        """Return the row of a number or a name.

        Raises `UsageError` if the row does not exist or was deleted. Also raises it for digits that are both
        a number and the name of another row.
        """
        number = ROW_PATTERN.fullmatch(row_or_name) if isinstance(row_or_name, str) else None
        if isinstance(row_or_name, str) and not number:
            return self._find_row_by_name(row_or_name.removeprefix(NAME_PREFIX))
        row = int(number[1]) if number else int(row_or_name)
        if number and number[0] == number[1] and (others := [called for called in self._find_rows_by_name(number[1]) if called != row]):
            raise UsageError(
                f"{row_or_name} can mean row {row} of {self.location} or the sample with that name, row {others[0]}: "
                f"use row:{row_or_name} or {NAME_PREFIX}{row_or_name}"
            )
        if not self._has_row(row):
            gone = "was deleted" if 0 <= row < self.next_row else f"does not exist: rows are 0 to {self.next_row - 1}"
            raise UsageError(f"row {row} of {self.location} {gone}")
        return row

    def _find_row_by_name(self, name: str) -> int:
        found = self._find_rows_by_name(name)
        if not found:
            raise UsageError(f"{self.location} has no sample named {name!r} (give a row number as row:17)")
        if len(found) > 1:
            listed = ", ".join(map(str, found[:5]))
            raise UsageError(
                f"{self.location} has {len(found)} samples named {name!r}: choose one by its row ({listed}{', …' * (len(found) > 5)}), "
                f"as row:{found[0]}"
            )
        return found[0]

    @abstractmethod
    def _has_row(self, row: int) -> bool:
        """Return True if the row exists and is not deleted."""

    @abstractmethod
    def _find_rows_by_name(self, name: str) -> list[int]:
        """Return the rows with this name that are not deleted."""

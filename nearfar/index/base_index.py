"""What every index promises, wherever it is kept."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.index.distance_metric import Metric, prepare_vectors
from nearfar.index.model_identity import ModelIdentity
from nearfar.index.row_table import RowTable
from nearfar.train.model import Model
from nearfar.train.user_recipes import TrustedRecipes

ROW_PATTERN = re.compile(r"(?:row:)?(\d+)")
NAME_PREFIX = "name:"
"""Before a name that could be taken for something else."""


@dataclass(frozen=True)
class Hits:
    """The nearest rows of each query, the nearest first. Cosine and dot: larger scores are nearer; l2: smaller ones."""

    scores: Float32[np.ndarray, "q k"]
    rows: Int64[np.ndarray, "q k"]


class Index(ABC):
    """Vectors with names. A row keeps its number for ever; the number of a deleted one is never given again."""

    location: str
    """The folder or the store, as it was named."""
    index_type: str
    """exact, hnsw or ivf."""
    metric: Metric
    dim: int
    model_identity: ModelIdentity | None
    """What made the vectors; None where nobody said."""
    next_row: int
    """Rows there ever were: numbers are below this."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows that can be found."""

    def search(self, queries: Float[np.ndarray, "q d"], k: int = 10) -> Hits:
        """The k nearest rows of each query; all of them where there are fewer."""
        if k < 1:
            raise UsageError(f"--k must be at least 1, got {k}")
        return self._search(prepare_vectors(queries, self.metric, self.dim, "queries"), min(k, len(self)))

    @abstractmethod
    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits: ...

    @abstractmethod
    def describe_rows(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        """What rows are: dict(name, row, label), with text or path where there is one."""

    @abstractmethod
    def read_thumbnails(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        """PNG files of rows that are images without a file of their own."""

    @abstractmethod
    def read_vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """The vectors of rows; of length 1 where the metric is cosine."""

    def add(self, vectors: Float[np.ndarray, "n d"], row_table: RowTable | Sequence[str] | None = None) -> Int64[np.ndarray, " n"]:
        """Add vectors and keep them. Returns their rows."""
        fresh = prepare_vectors(vectors, self.metric, self.dim)
        rows = np.arange(self.next_row, self.next_row + len(fresh))
        named = RowTable.resolve(row_table, len(fresh), self.next_row)
        if len(fresh):
            self._add(fresh, named, rows)
        return rows

    @abstractmethod
    def _add(self, vectors: Float32[np.ndarray, "n d"], row_table: RowTable, rows: Int64[np.ndarray, " n"]) -> None: ...

    def delete(self, rows_or_names: int | str | Sequence[int | str] | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " m"]:
        """Delete rows by number (17, "17", "row:17") or by name ("cat.png", "name:17"). Returns their numbers."""
        asked = [rows_or_names] if isinstance(rows_or_names, (int, str)) else list(rows_or_names)
        rows = np.unique(np.array([self.resolve_row(one) for one in asked], dtype=np.int64))
        if len(rows):
            self._delete(rows)
        return rows

    @abstractmethod
    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None: ...

    def resolve_row(self, row_or_name: int | str | np.integer) -> int:
        """The row that a number or a name means, if it can be found. Digits that are the name of another row are neither."""
        number = ROW_PATTERN.fullmatch(row_or_name) if isinstance(row_or_name, str) else None
        if isinstance(row_or_name, str) and not number:
            return self._find_row_by_name(row_or_name.removeprefix(NAME_PREFIX))
        row = int(number[1]) if number else int(row_or_name)
        if number and number[0] == number[1] and (others := [called for called in self._find_rows_by_name(number[1]) if called != row]):
            raise UsageError(
                f"{row_or_name} can mean row {row} of {self.location} or the item of that name, row {others[0]}: say row:{row_or_name} or {NAME_PREFIX}{row_or_name}"
            )
        if not self._has_row(row):
            gone = "was deleted" if 0 <= row < self.next_row else f"is not there: rows are 0 to {self.next_row - 1}"
            raise UsageError(f"row {row} of {self.location} {gone}")
        return row

    def _find_row_by_name(self, name: str) -> int:
        found = self._find_rows_by_name(name)
        if not found:
            raise UsageError(f"{self.location} has no item called {name!r} (rows can be named by number, as row:17)")
        if len(found) > 1:
            listed = ", ".join(map(str, found[:5]))
            raise UsageError(
                f"{self.location} has {len(found)} items called {name!r}: name one by its row ({listed}{', …' * (len(found) > 5)}), "
                f"as row:{found[0]}"
            )
        return found[0]

    @abstractmethod
    def _has_row(self, row: int) -> bool:
        """Whether a row can be found."""

    @abstractmethod
    def _find_rows_by_name(self, name: str) -> list[int]:
        """Rows of this name that can be found."""

    def load_model(self, run: str | os.PathLike | None = None, *, device: str = "auto", recipe: TrustedRecipes = None) -> Model:
        """The model that made the vectors, loaded. `run`: where its folder lies now, if it was moved."""
        if self.model_identity is None:
            raise NearfarError(f"{self.location} does not say which model made its vectors: search it with vectors")
        return self.model_identity.load(run, device, recipe, self.location)

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
from nearfar.index.distance_metric import Metric, prepared
from nearfar.index.model_identity import Model
from nearfar.index.row_table import Items
from nearfar.train.model import Trained
from nearfar.train.user_recipes import Trusted

ROW = re.compile(r"(?:row:)?(\d+)")
NAME = "name:"
"""Before a name that could be taken for something else."""


@dataclass(frozen=True)
class Hits:
    """The nearest rows of each query, the nearest first. Cosine and dot: larger scores are nearer; l2: smaller ones."""

    scores: Float32[np.ndarray, "q k"]
    rows: Int64[np.ndarray, "q k"]


class Index(ABC):
    """Vectors with names. A row keeps its number for ever; the number of a deleted one is never given again."""

    where: str
    """The folder or the store, as it was named."""
    kind: str
    """exact, hnsw or ivf."""
    metric: Metric
    dim: int
    model: Model | None
    """What made the vectors; None where nobody said."""
    ever: int
    """Rows there ever were: numbers are below this."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows that can be found."""

    def search(self, queries: Float[np.ndarray, "q d"], k: int = 10) -> Hits:
        """The k nearest rows of each query; all of them where there are fewer."""
        if k < 1:
            raise UsageError(f"--k must be at least 1, got {k}")
        return self._search(prepared(queries, self.metric, self.dim, "queries"), min(k, len(self)))

    @abstractmethod
    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits: ...

    @abstractmethod
    def items(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        """What rows are: dict(name, row, label), with text or path where there is one."""

    @abstractmethod
    def pictures(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        """PNG files of rows that are images without a file of their own."""

    @abstractmethod
    def vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """The vectors of rows; of length 1 where the metric is cosine."""

    def add(self, vectors: Float[np.ndarray, "n d"], items: Items | Sequence[str] | None = None) -> Int64[np.ndarray, " n"]:
        """Add vectors and keep them. Returns their rows."""
        fresh = prepared(vectors, self.metric, self.dim)
        rows = np.arange(self.ever, self.ever + len(fresh))
        named = Items.given(items, len(fresh), self.ever)
        if len(fresh):
            self._add(fresh, named, rows)
        return rows

    @abstractmethod
    def _add(self, vectors: Float32[np.ndarray, "n d"], items: Items, rows: Int64[np.ndarray, " n"]) -> None: ...

    def delete(self, rows_or_names: int | str | Sequence[int | str] | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " m"]:
        """Delete rows by number (17, "17", "row:17") or by name ("cat.png", "name:17"). Returns their numbers."""
        asked = [rows_or_names] if isinstance(rows_or_names, (int, str)) else list(rows_or_names)
        rows = np.unique(np.array([self.row_of(one) for one in asked], dtype=np.int64))
        if len(rows):
            self._delete(rows)
        return rows

    @abstractmethod
    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None: ...

    def row_of(self, asked: int | str | np.integer) -> int:
        """The row that a number or a name means, if it can be found. Digits that are the name of another row are neither."""
        number = ROW.fullmatch(asked) if isinstance(asked, str) else None
        if isinstance(asked, str) and not number:
            return self._row_called(asked.removeprefix(NAME))
        row = int(number[1]) if number else int(asked)
        if number and number[0] == number[1] and (others := [called for called in self._rows_called(number[1]) if called != row]):
            raise UsageError(
                f"{asked} can mean row {row} of {self.where} or the item of that name, row {others[0]}: say row:{asked} or {NAME}{asked}"
            )
        if not self._holds(row):
            gone = "was deleted" if 0 <= row < self.ever else f"is not there: rows are 0 to {self.ever - 1}"
            raise UsageError(f"row {row} of {self.where} {gone}")
        return row

    def _row_called(self, name: str) -> int:
        found = self._rows_called(name)
        if not found:
            raise UsageError(f"{self.where} has no item called {name!r} (rows can be named by number, as row:17)")
        if len(found) > 1:
            listed = ", ".join(map(str, found[:5]))
            raise UsageError(
                f"{self.where} has {len(found)} items called {name!r}: name one by its row ({listed}{', …' * (len(found) > 5)}), "
                f"as row:{found[0]}"
            )
        return found[0]

    @abstractmethod
    def _holds(self, row: int) -> bool:
        """Whether a row can be found."""

    @abstractmethod
    def _rows_called(self, name: str) -> list[int]:
        """Rows of this name that can be found."""

    def trained(self, run: str | os.PathLike | None = None, *, device: str = "auto", recipe: Trusted = None) -> Trained:
        """The model that made the vectors, loaded. `run`: where its folder lies now, if it was moved."""
        if self.model is None:
            raise NearfarError(f"{self.where} does not say which model made its vectors: search it with vectors")
        return self.model.load(run, device, recipe, self.where)

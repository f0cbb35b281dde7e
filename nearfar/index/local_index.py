"""An index in a folder (or in memory only): FAISS finds the rows, an Arrow table says what they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int64

from nearfar.core.errors import NearfarError
from nearfar.index import index_folder as folder
from nearfar.index.distance_metric import Metric
from nearfar.index.engines import ENGINES, Engine, read_engine
from nearfar.index.interface import Hits, Index
from nearfar.index.model_identity import Model
from nearfar.index.row_table import SCHEMA, Items


class LocalIndex(Index):
    def __init__(
        self,
        engine: Engine,
        items: Items,
        *,
        kind: str,
        metric: Metric,
        dim: int,
        model: Model | None = None,
        deleted: Int64[np.ndarray, " n"] | None = None,
    ):
        self.engine, self.kind, self.metric, self.dim, self.model = engine, kind, metric, dim, model
        self.table = items
        self.deleted = np.zeros(0, dtype=np.int64) if deleted is None else deleted
        self.manifest: folder.Manifest | None = None
        self.where = "the index in memory"

    @classmethod
    def create(
        cls,
        vectors: Float32[np.ndarray, "n d"],
        items: Items,
        out: str | os.PathLike | None,
        *,
        kind: str,
        metric: Metric,
        model: Model | None,
        overwrite: bool = False,
    ) -> LocalIndex:
        engine = ENGINES[kind].empty(vectors, metric)
        engine.add(vectors, np.arange(len(vectors)))
        index = cls(engine, items, kind=kind, metric=metric, dim=vectors.shape[1], model=model)
        if out is not None:
            index.where = os.fspath(out)
            index.manifest = folder.create(out, index._about(), index._writers(), overwrite)
        return index

    @classmethod
    def open(cls, path: str | os.PathLike) -> LocalIndex:
        found = folder.verify(path)
        try:
            about = {name: found.about[name] for name in ("kind", "metric", "dim")}
            model = found.about["model"] and Model(**found.about["model"])
            deleted = np.load(found.path("deleted.npy"), allow_pickle=False)
            items = _read_items(found.path("items.arrow"))
        except (OSError, KeyError, TypeError, ValueError) as e:  # checksums match, hence another program wrote it
            raise NearfarError(f"{path} is no index of this version of nearfar: {e}") from e
        engine = read_engine(about["kind"], found.path("vectors.faiss"), deleted)
        index = cls(engine, items, **about, model=model, deleted=deleted)
        index.where, index.manifest = os.fspath(path), found
        return index

    @property
    def ever(self) -> int:  # type: ignore[override]
        return len(self.table)

    def __len__(self) -> int:
        return self.ever - len(self.deleted)

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits:
        if not k or not len(queries):
            return Hits(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
        return Hits(*self.engine.search(queries, k))

    def items(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        return self.table.describe(self._checked(rows))

    def pictures(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        return self.table.pictures(self._checked(rows))

    def vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        return self.engine.vectors(self._checked(rows))

    def _add(self, vectors: Float32[np.ndarray, "n d"], items: Items, rows: Int64[np.ndarray, " n"]) -> None:
        engine = self._engine_to_change()
        engine.add(vectors, rows)
        self._become(engine, self.table + items, self.deleted)

    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None:
        engine = self._engine_to_change()
        engine.remove(rows)
        self._become(engine, self.table.blanked(rows), np.union1d(self.deleted, rows))

    def _engine_to_change(self) -> Engine:
        """A copy, where the change has to be kept first and that may fail."""
        return self.engine if self.manifest is None else self.engine.copy()

    def _become(self, engine: Engine, items: Items, deleted: Int64[np.ndarray, " n"]) -> None:
        """The next state: on the disk first, then in memory."""
        if self.manifest is not None:
            following = LocalIndex(engine, items, kind=self.kind, metric=self.metric, dim=self.dim, model=self.model, deleted=deleted)
            self.manifest = folder.replace(self.manifest, following._about(), following._writers())
        self.engine, self.table, self.deleted = engine, items, deleted

    def _checked(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        found = np.asarray(rows, dtype=np.int64)
        wrong = (found < 0) | (found >= self.ever) | np.isin(found, self.deleted)
        if wrong.any():
            self.row_of(int(found[wrong][0]))  # says what is the matter
        return found

    def _holds(self, row: int) -> bool:
        return 0 <= row < self.ever and row not in self.deleted

    def _rows_called(self, name: str) -> list[int]:
        return self.table.rows_called(name).tolist()

    def _about(self) -> dict[str, Any]:
        model = None if self.model is None else asdict(self.model)
        return {"kind": self.kind, "metric": self.metric, "dim": self.dim, "rows": len(self), "model": model}

    def _writers(self) -> dict[str, Callable[[Path], None]]:
        return {
            "vectors.faiss": self.engine.write,
            "items.arrow": lambda path: _write_items(self.table, path),
            "deleted.npy": lambda path: np.save(path, self.deleted, allow_pickle=False),
        }


def _write_items(items: Items, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(items.table)


def _read_items(path: Path) -> Items:
    """Mapped, not read: of a million items a search shows ten."""
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    if table.schema != SCHEMA:
        raise ValueError(f"{path.name} has other columns: {', '.join(table.schema.names)}")
    return Items(table)

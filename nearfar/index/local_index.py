"""Index in a folder or in memory.

FAISS finds the rows, and an Arrow table describes them.
"""

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
from nearfar.index.base_index import Hits, Index
from nearfar.index.distance_metric import Metric
from nearfar.index.faiss_engines import ENGINE_CLASSES, FaissEngine, read_engine
from nearfar.index.model_identity import ModelIdentity
from nearfar.index.row_table import ROW_SCHEMA, RowTable


class LocalIndex(Index):
    """Index in a folder, or in memory only."""

    def __init__(
        self,
        engine: FaissEngine,
        row_table: RowTable,
        *,
        index_type: str,
        metric: Metric,
        dim: int,
        model_identity: ModelIdentity | None = None,
        deleted_rows: Int64[np.ndarray, " n"] | None = None,
    ):
        self.engine, self.index_type, self.metric, self.dim, self.model_identity = engine, index_type, metric, dim, model_identity
        self.row_table = row_table
        self.deleted_rows = np.zeros(0, dtype=np.int64) if deleted_rows is None else deleted_rows
        self.manifest: folder.Manifest | None = None
        self.location = "the index in memory"

    @classmethod
    def create(
        cls,
        vectors: Float32[np.ndarray, "n d"],
        row_table: RowTable,
        out: str | os.PathLike | None,
        *,
        index_type: str,
        metric: Metric,
        model_identity: ModelIdentity | None,
        overwrite: bool = False,
    ) -> LocalIndex:
        """Create an index of prepared vectors.

        `out` is the folder to create, None for an index in memory.
        """
        engine = ENGINE_CLASSES[index_type].create_empty(vectors, metric)
        engine.add(vectors, np.arange(len(vectors)))
        index = cls(engine, row_table, index_type=index_type, metric=metric, dim=vectors.shape[1], model_identity=model_identity)
        if out is not None:
            index.location = os.fspath(out)
            index.manifest = folder.create_index_folder(out, index._build_metadata(), index._writers(), overwrite)
        return index

    @classmethod
    def open(cls, path: str | os.PathLike) -> LocalIndex:
        """Open and verify an index folder."""
        found = folder.verify_index_folder(path)
        try:
            about = {name: found.metadata[name] for name in ("index_type", "metric", "dim")}
            identity = found.metadata["model_identity"] and ModelIdentity(**found.metadata["model_identity"])
            deleted = np.load(found.get_path("deleted.npy"), allow_pickle=False)
            items = _read_row_table(found.get_path("rows.arrow"))
        except (OSError, KeyError, TypeError, ValueError) as e:  # checksums match: another program wrote it
            raise NearfarError(f"{path} is not an index of this version of nearfar: {e}") from e
        engine = read_engine(about["index_type"], found.get_path("vectors.faiss"), deleted)
        index = cls(engine, items, **about, model_identity=identity, deleted_rows=deleted)
        index.location, index.manifest = os.fspath(path), found
        return index

    @property
    def next_row(self) -> int:  # type: ignore[override]
        """Return the number of rows ever added, deleted ones included."""
        return len(self.row_table)

    def __len__(self) -> int:
        return self.next_row - len(self.deleted_rows)

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits:
        if not k or not len(queries):
            return Hits(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
        return Hits(*self.engine.search(queries, k))

    def describe_rows(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        """Describe rows as dict(name, row, label), with text or path."""
        return self.row_table.describe(self._check_rows(rows))

    def read_thumbnails(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        """Return PNG files of rows that are images without a file."""
        return self.row_table.read_thumbnails(self._check_rows(rows))

    def read_vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """Return the stored vectors of rows."""
        return self.engine.read_vectors(self._check_rows(rows))

    def _add(self, vectors: Float32[np.ndarray, "n d"], row_table: RowTable, rows: Int64[np.ndarray, " n"]) -> None:
        engine = self._engine_to_change()
        engine.add(vectors, rows)
        self._commit(engine, self.row_table + row_table, self.deleted_rows)

    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None:
        engine = self._engine_to_change()
        engine.remove(rows)
        self._commit(engine, self.row_table.blank_rows(rows), np.union1d(self.deleted_rows, rows))

    def _engine_to_change(self) -> FaissEngine:
        """Return the engine that a change may modify.

        It is a copy for an index in a folder, because the change is written first and writing may fail.
        """
        return self.engine if self.manifest is None else self.engine.copy()

    def _commit(self, engine: FaissEngine, row_table: RowTable, deleted_rows: Int64[np.ndarray, " n"]) -> None:
        """Replace the state of the index, first on disk, then in memory."""
        if self.manifest is not None:
            following = LocalIndex(
                engine,
                row_table,
                index_type=self.index_type,
                metric=self.metric,
                dim=self.dim,
                model_identity=self.model_identity,
                deleted_rows=deleted_rows,
            )
            self.manifest = folder.write_next_revision(self.manifest, following._build_metadata(), following._writers())
        self.engine, self.row_table, self.deleted_rows = engine, row_table, deleted_rows

    def _check_rows(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        found = np.asarray(rows, dtype=np.int64)
        wrong = (found < 0) | (found >= self.next_row) | np.isin(found, self.deleted_rows)
        if wrong.any():
            self.resolve_row(int(found[wrong][0]))  # raises an error with the reason
        return found

    def _has_row(self, row: int) -> bool:
        return 0 <= row < self.next_row and row not in self.deleted_rows

    def _find_rows_by_name(self, name: str) -> list[int]:
        return self.row_table.find_rows_by_name(name).tolist()

    def _build_metadata(self) -> dict[str, Any]:
        identity = None if self.model_identity is None else asdict(self.model_identity)
        return {"index_type": self.index_type, "metric": self.metric, "dim": self.dim, "rows": len(self), "model_identity": identity}

    def _writers(self) -> dict[str, Callable[[Path], None]]:
        return {
            "vectors.faiss": self.engine.write,
            "rows.arrow": lambda path: _write_row_table(self.row_table, path),
            "deleted.npy": lambda path: np.save(path, self.deleted_rows, allow_pickle=False),
        }


def _write_row_table(row_table: RowTable, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, ROW_SCHEMA) as writer:
        writer.write_table(row_table.arrow_table)


def _read_row_table(path: Path) -> RowTable:
    """Map a row table into memory.

    The file is not read as a whole: a search shows ten rows of a million.
    """
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    if table.schema != ROW_SCHEMA:
        raise ValueError(f"{path.name} has unexpected columns: {', '.join(table.schema.names)}")
    return RowTable(table)

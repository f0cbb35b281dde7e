"""Index on Milvus, through pymilvus: a file of milvus-lite, or a server.

The index has two collections. NAME holds one record per row (id, vector, name, and its text, path or
thumbnail). NAME_state holds one record with the metadata of the index, the number of rows ever added, and a
flag for a complete index. This record is written first and last. All reads use strong consistency: every
process sees added and deleted rows at once.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.index.base_index import Hits, Index
from nearfar.index.distance_metric import Metric, convert_to_scores
from nearfar.index.faiss_engines import HNSW_BUILD_CANDIDATES, HNSW_LINKS, HNSW_SEARCH_CANDIDATES, PROBED_CELL_FRACTION, compute_cell_count
from nearfar.index.milvus_address import MilvusStore, parse_milvus_store
from nearfar.index.milvus_connection import (
    connect_to_milvus,
    create_collection,
    get_state_collection_name,
    import_pymilvus,
    read_index_state,
    report_milvus_errors,
)
from nearfar.index.model_identity import ModelIdentity
from nearfar.index.row_table import RowTable, format_row

MILVUS_FORMAT = 2
ROWS_PER_MESSAGE, QUERIES_PER_MESSAGE = 500, 1000
"""Rows and queries per message. A message has room for rows with the longest stored texts."""
MAX_HITS = 16_384
"""Maximum number of hits per query, a limit of Milvus."""
MAX_TEXT_CHARACTERS = 8_000
"""Maximum number of characters of a text that are stored for display.

A field holds 65,535 bytes, and a character may take six.
"""
logger = logging.getLogger("nearfar")


class MilvusIndex(Index):
    """Index in a Milvus collection."""

    def __init__(self, client: Any, store: MilvusStore, state: dict[str, Any]):
        self.client, self.store, self.state = client, store, state
        self.location = f"{store.uri}" if store.is_file else f"{store.uri}/{store.collection}"
        self.index_type, self.metric, self.dim = state["index_type"], state["metric"], state["dim"]
        self.model_identity = state["model_identity"] and ModelIdentity(**state["model_identity"])

    @classmethod
    def create(
        cls,
        vectors: Float32[np.ndarray, "n d"],
        row_table: RowTable,
        name: str,
        *,
        index_type: str,
        metric: Metric,
        model_identity: ModelIdentity | None,
        overwrite: bool = False,
    ) -> MilvusIndex:
        """Create an index of prepared vectors in a Milvus store."""
        check_new_store(name, overwrite)
        store, client = connect_to_milvus(name)
        about = {
            "format": MILVUS_FORMAT,
            "index_type": index_type,
            "metric": metric,
            "dim": vectors.shape[1],
            "num_cells": compute_cell_count(len(vectors)),
        }
        state = {**about, "model_identity": None if model_identity is None else asdict(model_identity), "next_row": 0, "complete": False}
        with report_milvus_errors(name):
            if not client.has_collection(get_state_collection_name(store)):
                create_collection(client, get_state_collection_name(store), 2, ("body",), "FLAT", {}, "L2")
            index = cls(client, store, state)
            index._write_state()
            if client.has_collection(store.collection):
                client.drop_collection(store.collection)
            create_collection(
                client, store.collection, vectors.shape[1], ("name", "row_json"), *_get_milvus_index_type(state), _get_metric_type(metric)
            )
            index._insert(vectors, row_table, np.arange(len(vectors)))
            index._write_state(next_row=len(vectors), complete=True)
        return index

    @classmethod
    def open(cls, name: str) -> MilvusIndex:
        """Open an existing index in a Milvus store."""
        store = parse_milvus_store(name)
        if store.is_file and not os.path.exists(store.uri):
            raise UsageError(f"{name} is not an index: there is no such file")
        store, client = connect_to_milvus(name)
        with report_milvus_errors(name):
            state = read_index_state(client, store)
            if state is None:
                raise UsageError(f"{name} has no nearfar index in the collection {store.collection!r}")
            if state.get("format") != MILVUS_FORMAT:
                raise NearfarError(
                    f"{name} was built by another version of nearfar (format {state.get('format')}; "
                    f"this version reads format {MILVUS_FORMAT}): build it again"
                )
            if not state["complete"]:
                raise NearfarError(f"{name} was never finished: it was interrupted while it was built. Build it again (--overwrite)")
            client.load_collection(store.collection)
        if state.get("adding"):
            logger.warning("%s: an addition was interrupted; rows %d to %d may be missing", name, *state["adding"])
        return cls(client, store, state)

    @property
    def next_row(self) -> int:  # type: ignore[override]
        """Return the number of rows ever added, deleted ones included.

        Each call asks Milvus, because another process may have added rows.
        """
        with report_milvus_errors(self.location):
            self.state = read_index_state(self.client, self.store) or self.state
        return self.state["next_row"]

    def __len__(self) -> int:
        with report_milvus_errors(self.location):
            return int(self.client.query(self.store.collection, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits:
        if not k or not len(queries):
            return Hits(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
        if k > MAX_HITS:
            raise UsageError(f"--k must be at most {MAX_HITS:,} with Milvus, got {k:,}")
        found = [self._search_batch(queries[i : i + QUERIES_PER_MESSAGE], k) for i in range(0, len(queries), QUERIES_PER_MESSAGE)]
        width = min(scores.shape[1] for scores, _ in found)
        scores, rows = (np.concatenate([part[i][:, :width] for part in found]) for i in (0, 1))
        return Hits(convert_to_scores(scores, self.metric == "l2"), rows.astype(np.int64))

    def _search_batch(self, queries: Float32[np.ndarray, "q d"], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Search for one message of queries.

        The search is repeated with more effort if a walk or the searched cells gave fewer than k rows.
        """
        for thorough in (False, True):
            with report_milvus_errors(self.location):
                found = self.client.search(
                    self.store.collection,
                    data=list(queries),
                    limit=k,
                    output_fields=["id"],
                    search_params=self._build_search_params(k, thorough),
                )
            fewest = min(len(hits.ids) for hits in found)
            if fewest == k:
                break
        scores, rows = ([getattr(hits, name)[:fewest] for hits in found] for name in ("distances", "ids"))
        return np.array(scores, dtype=np.float32), np.array(rows, dtype=np.int64)

    def _build_search_params(self, k: int, thorough: bool) -> dict[str, Any]:
        divided = self.state["num_cells"]
        ef = max(HNSW_SEARCH_CANDIDATES, 2 * k)
        params = {
            "exact": {},
            "hnsw": {"ef": 16 * ef if thorough else ef},
            "ivf": {"nprobe": divided if thorough else max(min(8, divided), round(PROBED_CELL_FRACTION * divided))},
        }
        return {"metric_type": _get_metric_type(self.metric), "params": params[self.index_type]}

    def describe_rows(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        """Describe rows as dict(name, row, label), with text or path."""
        return [format_row(_unpack_row(record), record["id"]) for record in self._read_records(rows, ["name", "row_json"])]

    def read_thumbnails(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        """Return PNG files of rows that are images without a file."""
        found = [_unpack_row(record)["picture"] for record in self._read_records(rows, ["name", "row_json"])]
        return [None if picture is None else base64.b64decode(picture) for picture in found]

    def read_vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """Return the stored vectors of rows."""
        found = [record["vector"] for record in self._read_records(rows, ["vector"])]
        return np.array(found, dtype=np.float32).reshape(len(found), self.dim)

    def _read_records(self, rows: Sequence[int] | Int64[np.ndarray, " n"], fields: list[str]) -> list[dict[str, Any]]:
        """Read the records of rows, in the order of `rows`.

        Milvus returns them in its own order.
        """
        asked = [int(row) for row in rows]
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(asked), ROWS_PER_MESSAGE):
            with report_milvus_errors(self.location):
                part = self.client.get(self.store.collection, ids=asked[start : start + ROWS_PER_MESSAGE], output_fields=["id", *fields])
            found |= {record["id"]: record for record in part}
        for row in asked:
            if row not in found:
                self.resolve_row(row)  # raises an error with the reason
        return [found[row] for row in asked]

    def _add(self, vectors: Float32[np.ndarray, "n d"], row_table: RowTable, rows: Int64[np.ndarray, " n"]) -> None:
        """Add vectors after reserving their row numbers.

        No other process gets these numbers, even if the addition is interrupted.
        """
        span = [int(rows[0]), int(rows[-1])]
        with report_milvus_errors(self.location):
            self._write_state(next_row=span[1] + 1, adding=span)
            self._insert(vectors, row_table, rows)
            self._write_state(adding=None)

    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None:
        with report_milvus_errors(self.location):
            self.client.delete(self.store.collection, ids=rows.tolist())

    def _has_row(self, row: int) -> bool:
        with report_milvus_errors(self.location):
            return bool(self.client.get(self.store.collection, ids=[row], output_fields=["id"]))

    def _find_rows_by_name(self, name: str) -> list[int]:
        with report_milvus_errors(self.location):
            found = self.client.query(
                self.store.collection, filter=f"name == {_quote_filter_string(name)}", output_fields=["id"], limit=MAX_HITS
            )
        return sorted(record["id"] for record in found)

    def _insert(self, vectors: Float32[np.ndarray, "n d"], row_table: RowTable, rows: Int64[np.ndarray, " n"]) -> None:
        for start in range(0, len(rows), ROWS_PER_MESSAGE):
            part = row_table.arrow_table.slice(start, ROWS_PER_MESSAGE).to_pylist()
            records = [
                {"id": int(rows[start + i]), "vector": vectors[start + i], "name": item["name"], "row_json": _pack_row(item)}
                for i, item in enumerate(part)
            ]
            self.client.insert(self.store.collection, records)

    def _write_state(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}
        self.client.upsert(get_state_collection_name(self.store), [{"id": 0, "vector": [0.0, 0.0], "body": json.dumps(self.state)}])


def check_new_store(name: str, overwrite: bool = False) -> None:
    """Check that an index can be built in a store."""
    store = parse_milvus_store(name)
    if store.is_file:
        folder = os.path.dirname(os.path.abspath(store.uri))
        if not os.path.isdir(folder):
            raise UsageError(f"cannot make {name}: there is no folder {folder}")
    if store.is_file and not os.path.exists(store.uri):
        import_pymilvus()
        return
    store, client = connect_to_milvus(name)
    with report_milvus_errors(name):
        taken = client.has_collection(store.collection)
        ours = taken and read_index_state(client, store) is not None
    client.close()
    if taken and not ours:
        raise UsageError(
            f"{name} has a collection {store.collection!r} that nearfar did not create: choose another (http://host:19530/NAME)"
        )
    if taken and not overwrite:
        raise UsageError(f"{name} already holds an index: add to it (`nearfar index --add DATA {name}`) or give --overwrite")


def _get_milvus_index_type(state: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """Return Milvus' name of an index type, and its settings.

    The settings are those of `nearfar.index.faiss_engines`.
    """
    known = {
        "exact": ("FLAT", {}),
        "hnsw": ("HNSW", {"M": HNSW_LINKS, "efConstruction": HNSW_BUILD_CANDIDATES}),
        "ivf": ("IVF_FLAT", {"nlist": state["num_cells"]}),
    }
    return known[state["index_type"]]


def _get_metric_type(metric: Metric) -> str:
    return "L2" if metric == "l2" else "IP"


def _pack_row(item: dict[str, Any]) -> str:
    """Encode a row without its name as ASCII JSON."""
    picture, path, text = item["picture"], item["path"], item["text"]
    return json.dumps(
        {
            "label": item["label"],
            "text": text if text is None or len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + "…",
            "path": None if path is None else os.fsdecode(path),
            "picture": None if picture is None else base64.b64encode(picture).decode(),
        }
    )


def _unpack_row(record: dict[str, Any]) -> dict[str, Any]:
    item = json.loads(record["row_json"])
    return {**item, "name": record["name"], "path": None if item["path"] is None else os.fsencode(item["path"])}


def _quote_filter_string(text: str) -> str:
    """Quote a string for Milvus' filter language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

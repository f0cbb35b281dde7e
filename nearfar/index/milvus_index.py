"""The same index on Milvus: a file of milvus-lite, or a server, through pymilvus.

Two collections. NAME holds a record for each row (id, vector, name, what shows it); NAME_state holds one record, which says what
the index is, how many rows were ever given out, and whether it was finished: it is written first and last. Everything is read with
strong consistency: what was added or deleted is seen at once, by everybody.
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
from nearfar.index.distance_metric import Metric, scores_of
from nearfar.index.engines import BREADTH, BREADTH_BUILT, LINKS, PROBED, cells
from nearfar.index.interface import Hits, Index
from nearfar.index.milvus_address import Store, parse_store
from nearfar.index.milvus_connection import connect, explained, make_collection, package, read_state, state_name
from nearfar.index.model_identity import Model
from nearfar.index.row_table import Items, shown

FORMAT = 1
ROWS_AT_ONCE, QUERIES_AT_ONCE = 500, 1000
"""What fits into one message, with the longest texts that are kept."""
MOST_HITS = 16_384
"""A limit of Milvus."""
TEXT_KEPT = 8_000
"""Characters of a text that are kept to be shown: a field holds 65,535 bytes, and a character may take six."""
log = logging.getLogger("nearfar")


class MilvusIndex(Index):
    def __init__(self, client: Any, store: Store, state: dict[str, Any]):
        self.client, self.store, self.state = client, store, state
        self.where = f"{store.uri}" if store.is_file else f"{store.uri}/{store.collection}"
        self.kind, self.metric, self.dim = state["kind"], state["metric"], state["dim"]
        self.model = state["model"] and Model(**state["model"])

    @classmethod
    def create(
        cls,
        vectors: Float32[np.ndarray, "n d"],
        items: Items,
        name: str,
        *,
        kind: str,
        metric: Metric,
        model: Model | None,
        overwrite: bool = False,
    ) -> MilvusIndex:
        check_new_store(name, overwrite)
        store, client = connect(name)
        about = {"format": FORMAT, "kind": kind, "metric": metric, "dim": vectors.shape[1], "cells": cells(len(vectors))}
        state = {**about, "model": None if model is None else asdict(model), "ever": 0, "whole": False}
        with explained(name):
            if not client.has_collection(state_name(store)):
                make_collection(client, state_name(store), 2, ("body",), "FLAT", {}, "L2")
            index = cls(client, store, state)
            index._write_state()
            if client.has_collection(store.collection):
                client.drop_collection(store.collection)
            make_collection(client, store.collection, vectors.shape[1], ("name", "item"), *_engine(state), _distance(metric))
            index._insert(vectors, items, np.arange(len(vectors)))
            index._write_state(ever=len(vectors), whole=True)
        return index

    @classmethod
    def open(cls, name: str) -> MilvusIndex:
        store = parse_store(name)
        if store.is_file and not os.path.exists(store.uri):
            raise UsageError(f"{name} is not an index: there is no such file")
        store, client = connect(name)
        with explained(name):
            state = read_state(client, store)
            if state is None:
                raise UsageError(f"{name} holds no index of nearfar in the collection {store.collection!r}")
            if state.get("format") != FORMAT:
                raise NearfarError(f"{name} is an index of format {state.get('format')}; this version of nearfar reads format {FORMAT}")
            if not state["whole"]:
                raise NearfarError(f"{name} was never finished: it was interrupted while it was built. Build it anew (--overwrite)")
            client.load_collection(store.collection)
        if state.get("adding"):
            log.warning("%s: an addition was interrupted; rows %d to %d may be missing", name, *state["adding"])
        return cls(client, store, state)

    @property
    def ever(self) -> int:  # type: ignore[override]
        """Asked anew: another process may have added rows."""
        with explained(self.where):
            self.state = read_state(self.client, self.store) or self.state
        return self.state["ever"]

    def __len__(self) -> int:
        with explained(self.where):
            return int(self.client.query(self.store.collection, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        self.client.close()

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Hits:
        if not k or not len(queries):
            return Hits(np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64))
        if k > MOST_HITS:
            raise UsageError(f"--k is at most {MOST_HITS:,} with Milvus, got {k:,}")
        found = [self._ask(queries[i : i + QUERIES_AT_ONCE], k) for i in range(0, len(queries), QUERIES_AT_ONCE)]
        width = min(scores.shape[1] for scores, _ in found)
        scores, rows = (np.concatenate([part[i][:, :width] for part in found]) for i in (0, 1))
        return Hits(scores_of(scores, self.metric == "l2"), rows.astype(np.int64))

    def _ask(self, queries: Float32[np.ndarray, "q d"], k: int) -> tuple[np.ndarray, np.ndarray]:
        """One message; again, and more thoroughly, if a walk or the cells it looked into found fewer than k."""
        for thorough in (False, True):
            with explained(self.where):
                found = self.client.search(
                    self.store.collection, data=list(queries), limit=k, output_fields=["id"], search_params=self._how(k, thorough)
                )
            fewest = min(len(hits.ids) for hits in found)
            if fewest == k:
                break
        scores, rows = ([getattr(hits, name)[:fewest] for hits in found] for name in ("distances", "ids"))
        return np.array(scores, dtype=np.float32), np.array(rows, dtype=np.int64)

    def _how(self, k: int, thorough: bool) -> dict[str, Any]:
        divided = self.state["cells"]
        ef = max(BREADTH, 2 * k)
        params = {
            "exact": {},
            "hnsw": {"ef": 16 * ef if thorough else ef},
            "ivf": {"nprobe": divided if thorough else max(min(8, divided), round(PROBED * divided))},
        }
        return {"metric_type": _distance(self.metric), "params": params[self.kind]}

    def items(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[dict[str, Any]]:
        return [shown(_item(record), record["id"]) for record in self._records(rows, ["name", "item"])]

    def pictures(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> list[bytes | None]:
        found = [_item(record)["picture"] for record in self._records(rows, ["name", "item"])]
        return [None if picture is None else base64.b64decode(picture) for picture in found]

    def vectors(self, rows: Sequence[int] | Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        found = [record["vector"] for record in self._records(rows, ["vector"])]
        return np.array(found, dtype=np.float32).reshape(len(found), self.dim)

    def _records(self, rows: Sequence[int] | Int64[np.ndarray, " n"], fields: list[str]) -> list[dict[str, Any]]:
        """In the order of `rows`; Milvus answers in its own."""
        asked = [int(row) for row in rows]
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(asked), ROWS_AT_ONCE):
            with explained(self.where):
                part = self.client.get(self.store.collection, ids=asked[start : start + ROWS_AT_ONCE], output_fields=["id", *fields])
            found |= {record["id"]: record for record in part}
        for row in asked:
            if row not in found:
                self.row_of(row)  # says what is the matter
        return [found[row] for row in asked]

    def _add(self, vectors: Float32[np.ndarray, "n d"], items: Items, rows: Int64[np.ndarray, " n"]) -> None:
        """Numbers are taken before they are used: nobody else gets them, even if this is interrupted."""
        span = [int(rows[0]), int(rows[-1])]
        with explained(self.where):
            self._write_state(ever=span[1] + 1, adding=span)
            self._insert(vectors, items, rows)
            self._write_state(adding=None)

    def _delete(self, rows: Int64[np.ndarray, " n"]) -> None:
        with explained(self.where):
            self.client.delete(self.store.collection, ids=rows.tolist())

    def _holds(self, row: int) -> bool:
        with explained(self.where):
            return bool(self.client.get(self.store.collection, ids=[row], output_fields=["id"]))

    def _rows_called(self, name: str) -> list[int]:
        with explained(self.where):
            found = self.client.query(self.store.collection, filter=f"name == {_quoted(name)}", output_fields=["id"], limit=MOST_HITS)
        return sorted(record["id"] for record in found)

    def _insert(self, vectors: Float32[np.ndarray, "n d"], items: Items, rows: Int64[np.ndarray, " n"]) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = items.table.slice(start, ROWS_AT_ONCE).to_pylist()
            records = [
                {"id": int(rows[start + i]), "vector": vectors[start + i], "name": item["name"], "item": _packed(item)}
                for i, item in enumerate(part)
            ]
            self.client.insert(self.store.collection, records)

    def _write_state(self, **changes: Any) -> None:
        self.state = {**self.state, **changes}
        self.client.upsert(state_name(self.store), [{"id": 0, "vector": [0.0, 0.0], "body": json.dumps(self.state)}])


def check_new_store(name: str, overwrite: bool = False) -> None:
    """A store that an index may be built in."""
    store = parse_store(name)
    if store.is_file:
        folder = os.path.dirname(os.path.abspath(store.uri))
        if not os.path.isdir(folder):
            raise UsageError(f"cannot make {name}: there is no folder {folder}")
    if store.is_file and not os.path.exists(store.uri):
        package()
        return
    store, client = connect(name)
    with explained(name):
        taken = client.has_collection(store.collection)
        ours = taken and read_state(client, store) is not None
    client.close()
    if taken and not ours:
        raise UsageError(f"{name} has a collection {store.collection!r} that nearfar did not make: name another (http://host:19530/NAME)")
    if taken and not overwrite:
        raise UsageError(f"{name} already holds an index: add to it (`nearfar index --add DATA {name}`) or give --overwrite")


def _engine(state: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """Milvus' name of a kind of search, and its settings: those of `nearfar.index.engines`."""
    known = {
        "exact": ("FLAT", {}),
        "hnsw": ("HNSW", {"M": LINKS, "efConstruction": BREADTH_BUILT}),
        "ivf": ("IVF_FLAT", {"nlist": state["cells"]}),
    }
    return known[state["kind"]]


def _distance(metric: Metric) -> str:
    return "L2" if metric == "l2" else "IP"


def _packed(item: dict[str, Any]) -> str:
    """Everything of an item but its name, as ASCII."""
    picture, path, text = item["picture"], item["path"], item["text"]
    return json.dumps(
        {
            "label": item["label"],
            "text": text if text is None or len(text) <= TEXT_KEPT else text[:TEXT_KEPT] + "…",
            "path": None if path is None else os.fsdecode(path),
            "picture": None if picture is None else base64.b64encode(picture).decode(),
        }
    )


def _item(record: dict[str, Any]) -> dict[str, Any]:
    item = json.loads(record["item"])
    return {**item, "name": record["name"], "path": None if item["path"] is None else os.fsencode(item["path"])}


def _quoted(text: str) -> str:
    """A string of Milvus' filter language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

"""Three ways to find neighbours, which one fits how many vectors, and how FAISS does each.

exact   compare with all                                     right by definition; up to some ten thousand vectors also quick
hnsw    walk a graph of neighbours towards the query         quick; slow to build, its links take 256 bytes a vector
        Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using hierarchical navigable small world
        graphs, 2018
ivf     k-means once, then compare within the nearest cells  quick to build, no memory beyond the vectors
        Jégou, Douze, Schmid: Product quantization for nearest neighbor search, 2011, section 4
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from nearfar.core.errors import NearfarError, UsageError
from nearfar.index.distance_metric import Metric, scores_of
from nearfar.index.exact_search import ExactSearch, Found

KINDS = ("exact", "hnsw", "ivf")
EXACT_UP_TO = 20_000
GRAPH_UP_TO = 2_000_000
LINKS, BREADTH_BUILT, BREADTH = 32, 80, 64
"""HNSW: links of a vector, and how many candidates a walk keeps while it builds and while it searches."""
PER_CELL = 39
"""IVF: vectors a cell at least, or its centre says little."""
PROBED = 1 / 16
"""IVF: share of the cells that a query looks into."""


def choose(kind: str, n: int) -> tuple[str, str]:
    """The kind to build, and why, in one line."""
    if kind not in ("auto", *KINDS):
        raise UsageError(f"--kind is {', '.join(KINDS)}; got {kind!r}")
    if kind != "auto":
        return kind, f"{n:,} vectors: {kind}, as asked"
    if n <= EXACT_UP_TO:
        return "exact", f"{n:,} vectors: exact search, which is quick up to {EXACT_UP_TO:,}"
    if n <= GRAPH_UP_TO:
        return "hnsw", f"{n:,} vectors: hnsw, a graph that finds nearly all true neighbours (--kind exact finds all, more slowly)"
    return "ivf", f"{n:,} vectors: ivf, cells that take no memory beyond the vectors (--kind hnsw: quicker, larger, slow to build)"


def cells(n: int) -> int:
    """How many cells IVF divides n vectors into."""
    return max(1, min(round(4 * math.sqrt(n)), n // PER_CELL))


def faiss_module() -> Any:
    try:
        import faiss
    except ImportError as e:
        raise UsageError("an index needs the package 'faiss-cpu', which is not installed: pip install faiss-cpu") from e
    return faiss


class Engine(ABC):
    """A FAISS index whose ids are rows. `found` rows of −1 mean: there were too few."""

    def __init__(self, inner: Any):
        self.inner = inner

    @classmethod
    @abstractmethod
    def empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> Engine:
        """An engine for vectors like these, which are not yet in it."""

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        self.inner.add_with_ids(vectors, rows)

    @abstractmethod
    def remove(self, rows: Int64[np.ndarray, " n"]) -> None: ...

    @abstractmethod
    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Found:
        """Return scores and rows of the k nearest, nearest first; for l2 the scores are distances."""

    def vectors(self, rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        return self.inner.reconstruct_batch(rows)

    def copy(self) -> Engine:
        """One that can be changed without this one."""
        found = copy(self)
        found.inner = faiss_module().clone_index(self.inner)
        return found

    def write(self, path: Path) -> None:
        """Through a file of Python's: FAISS's own only prints that the disk was full when the last bytes were to be written."""
        faiss = faiss_module()
        with open(path, "wb") as file:
            faiss.write_index(self.inner, faiss.PyCallbackIOWriter(file.write))


class Exact(Engine):
    @classmethod
    def empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> Exact:
        faiss = faiss_module()
        return cls(faiss.IndexIDMap2(faiss.IndexFlat(vectors.shape[1], _distance(metric))))

    def __init__(self, inner: Any):
        super().__init__(inner)
        self.ready: ExactSearch | None = None
        """Made by the first search after a change."""

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        self.ready = None
        super().add(vectors, rows)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        self.ready = None
        self.inner.remove_ids(rows)

    def copy(self) -> Engine:
        found = super().copy()
        assert isinstance(found, Exact)
        found.ready = None  # this one looks at the vectors of the original
        return found

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Found:
        faiss = faiss_module()
        self.ready = self.ready or ExactSearch(faiss.downcast_index(self.inner.index))
        scores, places = self.ready(queries, k)
        rows = faiss.rev_swig_ptr(self.inner.id_map.data(), self.inner.ntotal)  # rising, as rows are added and deleted in order
        return scores, rows[places]


class Graph(Engine):
    """HNSW. A vector cannot leave the graph, others are reached through it: deleted rows are passed over when they are found."""

    def __init__(self, inner: Any, deleted: Int64[np.ndarray, " n"] | None = None):
        super().__init__(inner)
        self.deleted = np.zeros(0, dtype=np.int64) if deleted is None else deleted

    @classmethod
    def empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> Graph:
        inner = faiss_module().IndexHNSWFlat(vectors.shape[1], LINKS, _distance(metric))
        inner.hnsw.efConstruction = BREADTH_BUILT
        return cls(inner)

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        assert rows[0] == self.inner.ntotal, "rows of a graph are counted from 0 without gaps"
        self.inner.add(vectors)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        self.deleted = np.union1d(self.deleted, rows)

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Found:
        faiss = faiss_module()
        alive = self._alive()
        crowded = self.inner.ntotal / (self.inner.ntotal - len(self.deleted))  # a walk meets that many rows for each that counts
        walk = faiss.SearchParametersHNSW(efSearch=round(max(BREADTH, 2 * k) * crowded), **alive)
        found = self.inner.search(queries, k, params=walk)
        found = _completed(found, queries, lambda q: self.inner.storage.search(q, k, params=faiss.SearchParameters(**alive)))
        return scores_of(found[0], self.inner.metric_type == faiss.METRIC_L2), found[1]

    def _alive(self) -> dict[str, Any]:
        if not self.deleted.size:
            return {}
        alive = np.ones(self.inner.ntotal, dtype=bool)
        alive[self.deleted] = False
        return {"sel": faiss_module().IDSelectorBitmap(np.packbits(alive, bitorder="little"))}


class Cells(Engine):
    @classmethod
    def empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> Cells:
        faiss = faiss_module()
        centres = faiss.IndexFlat(vectors.shape[1], _distance(metric))
        inner = faiss.IndexIVFFlat(centres, vectors.shape[1], cells(len(vectors)), _distance(metric))
        inner.cp.spherical = metric == "cosine"
        inner.cp.min_points_per_centroid = 1  # few vectors are the user's wish, and no reason to print a warning
        inner.train(vectors)
        inner.set_direct_map_type(faiss.DirectMap.Hashtable)
        return cls(inner)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        faiss = faiss_module()
        self.inner.remove_ids(faiss.IDSelectorArray(len(rows), faiss.swig_ptr(rows)))

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> Found:
        faiss = faiss_module()
        probed = max(min(8, self.inner.nlist), round(PROBED * self.inner.nlist))
        found = self.inner.search(queries, k, params=faiss.SearchParametersIVF(nprobe=probed))
        everywhere = faiss.SearchParametersIVF(nprobe=self.inner.nlist)
        found = _completed(found, queries, lambda q: self.inner.search(q, k, params=everywhere))
        return scores_of(found[0], self.inner.metric_type == faiss.METRIC_L2), found[1]


def _completed(found: Found, queries: Float32[np.ndarray, "q d"], exactly: Callable[[Any], Found]) -> Found:
    """Queries that found fewer than k (deleted or far-off rows were in the way) are answered exactly."""
    scores, rows = found
    short = (rows < 0).any(axis=1)
    if short.any():
        scores[short], rows[short] = exactly(queries[short])
    return scores, rows


def _distance(metric: Metric) -> int:
    faiss = faiss_module()
    return faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT


ENGINES: dict[str, type[Engine]] = {"exact": Exact, "hnsw": Graph, "ivf": Cells}


def read_engine(kind: str, path: Path, deleted: Int64[np.ndarray, " n"]) -> Engine:
    """From a file whose checksum has matched: FAISS trusts what it reads."""
    faiss = faiss_module()
    try:
        inner = faiss.read_index(str(path))
    except RuntimeError as e:
        raise NearfarError(f"{path} cannot be read by this version of FAISS ({faiss.__version__}): build the index anew") from e
    return Graph(inner, deleted) if kind == "hnsw" else ENGINES[kind](inner)

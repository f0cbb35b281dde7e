"""Three types of vector search with FAISS: exact, hnsw and ivf.

exact   compares with all vectors                          correct by definition; fast to some 10,000 vectors
hnsw    walks a graph of neighbors towards the query       fast; slow to build, links take 256 bytes a vector
        Malkov, Yashunin: Efficient and robust approximate nearest neighbor search using hierarchical
        navigable small world graphs, 2018
ivf     k-means once, then compares in the nearest cells   fast to build, no memory beyond the vectors
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
from nearfar.index.distance_metric import Metric, convert_to_scores
from nearfar.index.exact_search import ExactSearch, ScoredRows

INDEX_TYPES = ("exact", "hnsw", "ivf")
MAX_EXACT_VECTORS = 20_000
MAX_HNSW_VECTORS = 2_000_000
HNSW_LINKS, HNSW_BUILD_CANDIDATES, HNSW_SEARCH_CANDIDATES = 32, 80, 64
"""Settings of HNSW: links per vector, candidates while building, candidates while searching.

A walk through the graph keeps this many candidates.
"""
MIN_VECTORS_PER_CELL = 39
"""Minimum number of vectors per IVF cell. With fewer, the center of a cell is not representative."""
PROBED_CELL_FRACTION = 1 / 16
"""Fraction of the IVF cells that a query searches."""


def choose_index_type(index_type: str, num_vectors: int) -> tuple[str, str]:
    """Choose the index type to build.

    Returns:
        The type, and the reason in one line.
    """
    if index_type not in ("auto", *INDEX_TYPES):
        raise UsageError(f"--index-type must be one of {', '.join(INDEX_TYPES)}; got {index_type!r}")
    if index_type != "auto":
        return index_type, f"{num_vectors:,} vectors: {index_type}, as asked"
    if num_vectors <= MAX_EXACT_VECTORS:
        return "exact", f"{num_vectors:,} vectors: exact search, which is quick up to {MAX_EXACT_VECTORS:,}"
    if num_vectors <= MAX_HNSW_VECTORS:
        return (
            "hnsw",
            f"{num_vectors:,} vectors: hnsw, a graph that finds nearly all true neighbors (--index-type exact finds all, more slowly)",
        )
    return (
        "ivf",
        f"{num_vectors:,} vectors: ivf, cells that take no memory beyond the vectors (--index-type hnsw: quicker, larger, slow to build)",
    )


def compute_cell_count(num_vectors: int) -> int:
    """Return the number of IVF cells for n vectors."""
    return max(1, min(round(4 * math.sqrt(num_vectors)), num_vectors // MIN_VECTORS_PER_CELL))


def import_faiss() -> Any:
    """Import FAISS. Raises `UsageError` if it is not installed."""
    try:
        import faiss
    except ImportError as e:
        raise UsageError("an index needs the package 'faiss-cpu', which is not installed: pip install faiss-cpu") from e
    return faiss


class FaissEngine(ABC):
    """FAISS index whose ids are rows.

    Rows of −1 in a search result mean that fewer than k rows were found.
    """

    def __init__(self, faiss_index: Any):
        self.faiss_index = faiss_index

    @classmethod
    @abstractmethod
    def create_empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> FaissEngine:
        """Create an engine for vectors like these.

        The vectors themselves are not added.
        """

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        """Add vectors under these row numbers."""
        self.faiss_index.add_with_ids(vectors, rows)

    @abstractmethod
    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        """Remove rows."""
        ...

    @abstractmethod
    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return scores and rows of the k nearest, nearest first.

        For l2 the scores are distances.
        """

    def read_vectors(self, rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n d"]:
        """Return the stored vectors of rows."""
        return self.faiss_index.reconstruct_batch(rows)

    def copy(self) -> FaissEngine:
        """Return a copy that can change independently."""
        found = copy(self)
        found.faiss_index = import_faiss().clone_index(self.faiss_index)
        return found

    def write(self, path: Path) -> None:
        """Write the index to a file.

        The file is opened by Python. The writer of FAISS only prints a message if the disk is full at the
        last bytes.
        """
        faiss = import_faiss()
        with open(path, "wb") as file:
            faiss.write_index(self.faiss_index, faiss.PyCallbackIOWriter(file.write))


class ExactEngine(FaissEngine):
    """Engine for exact search."""

    @classmethod
    def create_empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> ExactEngine:
        """Create an empty flat index."""
        faiss = import_faiss()
        return cls(faiss.IndexIDMap2(faiss.IndexFlat(vectors.shape[1], _get_faiss_metric(metric))))

    def __init__(self, faiss_index: Any):
        super().__init__(faiss_index)
        self.exact_search: ExactSearch | None = None
        """Exact search, created by the first search after a change."""

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        """Add vectors under these row numbers."""
        self.exact_search = None
        super().add(vectors, rows)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        """Remove rows."""
        self.exact_search = None
        self.faiss_index.remove_ids(rows)

    def copy(self) -> FaissEngine:
        """Return a copy that can change independently."""
        found = super().copy()
        assert isinstance(found, ExactEngine)
        found.exact_search = None  # it refers to the vectors of the original
        return found

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return scores and rows of the k nearest, nearest first."""
        faiss = import_faiss()
        self.exact_search = self.exact_search or ExactSearch(faiss.downcast_index(self.faiss_index.index))
        scores, places = self.exact_search(queries, k)
        # Row numbers are ascending: rows are added in order, and deletions keep the order.
        rows = faiss.rev_swig_ptr(self.faiss_index.id_map.data(), self.faiss_index.ntotal)
        return scores, rows[places]


class HnswEngine(FaissEngine):
    """Engine for HNSW search.

    A vector cannot leave the graph, because other vectors are reached through it. Deleted rows stay in the
    graph, and searches skip them.
    """

    def __init__(self, faiss_index: Any, deleted_rows: Int64[np.ndarray, " n"] | None = None):
        super().__init__(faiss_index)
        self.deleted_rows = np.zeros(0, dtype=np.int64) if deleted_rows is None else deleted_rows

    @classmethod
    def create_empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> HnswEngine:
        """Create an empty graph."""
        inner = import_faiss().IndexHNSWFlat(vectors.shape[1], HNSW_LINKS, _get_faiss_metric(metric))
        inner.hnsw.efConstruction = HNSW_BUILD_CANDIDATES
        return cls(inner)

    def add(self, vectors: Float32[np.ndarray, "n d"], rows: Int64[np.ndarray, " n"]) -> None:
        """Add vectors. Their rows continue the numbering without gaps."""
        assert rows[0] == self.faiss_index.ntotal, "row numbers of a graph index must start at 0 and have no gaps"
        self.faiss_index.add(vectors)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        """Mark rows as deleted."""
        self.deleted_rows = np.union1d(self.deleted_rows, rows)

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return scores and rows of the k nearest, nearest first."""
        faiss = import_faiss()
        alive = self._select_undeleted()
        crowded = self.faiss_index.ntotal / (
            self.faiss_index.ntotal - len(self.deleted_rows)
        )  # rows that a walk meets for each undeleted row
        walk = faiss.SearchParametersHNSW(efSearch=round(max(HNSW_SEARCH_CANDIDATES, 2 * k) * crowded), **alive)
        found = self.faiss_index.search(queries, k, params=walk)
        found = _complete_short_results(
            found, queries, lambda q: self.faiss_index.storage.search(q, k, params=faiss.SearchParameters(**alive))
        )
        return convert_to_scores(found[0], self.faiss_index.metric_type == faiss.METRIC_L2), found[1]

    def _select_undeleted(self) -> dict[str, Any]:
        if not self.deleted_rows.size:
            return {}
        alive = np.ones(self.faiss_index.ntotal, dtype=bool)
        alive[self.deleted_rows] = False
        return {"sel": import_faiss().IDSelectorBitmap(np.packbits(alive, bitorder="little"))}


class IvfEngine(FaissEngine):
    """Engine for IVF search."""

    @classmethod
    def create_empty(cls, vectors: Float32[np.ndarray, "n d"], metric: Metric) -> IvfEngine:
        """Create an index whose cells are trained on these vectors."""
        faiss = import_faiss()
        centres = faiss.IndexFlat(vectors.shape[1], _get_faiss_metric(metric))
        inner = faiss.IndexIVFFlat(centres, vectors.shape[1], compute_cell_count(len(vectors)), _get_faiss_metric(metric))
        inner.cp.spherical = metric == "cosine"
        inner.cp.min_points_per_centroid = 1  # no warning if there are few vectors
        inner.train(vectors)
        inner.set_direct_map_type(faiss.DirectMap.Hashtable)
        return cls(inner)

    def remove(self, rows: Int64[np.ndarray, " n"]) -> None:
        """Remove rows."""
        faiss = import_faiss()
        self.faiss_index.remove_ids(faiss.IDSelectorArray(len(rows), faiss.swig_ptr(rows)))

    def search(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return scores and rows of the k nearest, nearest first."""
        faiss = import_faiss()
        probed = max(min(8, self.faiss_index.nlist), round(PROBED_CELL_FRACTION * self.faiss_index.nlist))
        found = self.faiss_index.search(queries, k, params=faiss.SearchParametersIVF(nprobe=probed))
        everywhere = faiss.SearchParametersIVF(nprobe=self.faiss_index.nlist)
        found = _complete_short_results(found, queries, lambda q: self.faiss_index.search(q, k, params=everywhere))
        return convert_to_scores(found[0], self.faiss_index.metric_type == faiss.METRIC_L2), found[1]


def _complete_short_results(
    found: ScoredRows, queries: Float32[np.ndarray, "q d"], search_exactly: Callable[[Any], ScoredRows]
) -> ScoredRows:
    """Search exactly for queries that found fewer than k rows.

    Deleted or distant rows were in the way of these queries.
    """
    scores, rows = found
    short = (rows < 0).any(axis=1)
    if short.any():
        scores[short], rows[short] = search_exactly(queries[short])
    return scores, rows


def _get_faiss_metric(metric: Metric) -> int:
    faiss = import_faiss()
    return faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT


ENGINE_CLASSES: dict[str, type[FaissEngine]] = {"exact": ExactEngine, "hnsw": HnswEngine, "ivf": IvfEngine}


def read_engine(index_type: str, path: Path, deleted_rows: Int64[np.ndarray, " n"]) -> FaissEngine:
    """Read an engine from a file.

    Verify the checksum of the file first: FAISS trusts its contents.
    """
    faiss = import_faiss()
    try:
        inner = faiss.read_index(str(path))
    except RuntimeError as e:
        raise NearfarError(f"{path} cannot be read by this version of FAISS ({faiss.__version__}): build the index again") from e
    return HnswEngine(inner, deleted_rows) if index_type == "hnsw" else ENGINE_CLASSES[index_type](inner)

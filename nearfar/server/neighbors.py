"""Exact nearest neighbors by cosine, for several requests at once.

The answer to a query is bitwise the same, alone or among others. Tied rows come in row order
(`nearfar.index.exact_search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from nearfar.core.errors import MissingExtra
from nearfar.index.exact_search import ExactSearch


class SearchRequest(NamedTuple):
    """Query vectors of one request, and the number of neighbors of each."""

    vectors: Float32[np.ndarray, "q d"]
    k: int


class SearchHits(NamedTuple):
    """Rows and scores, nearest first."""

    scores: Float32[np.ndarray, "q k"]
    rows: Int64[np.ndarray, "q k"]


def normalize_rows(x: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Scale rows to unit length.

    Zero rows stay zero.
    """
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))[:, None]
    return (x / np.maximum(length, np.finfo(np.float32).tiny)).astype(np.float32)


class ExactCosineSearch:
    """Exact cosine search over vectors in memory."""

    def __init__(self, vectors: Float32[np.ndarray, "n d"]):
        self.vectors = normalize_rows(vectors)
        index = _import_faiss().IndexFlatIP(vectors.shape[1])
        index.add(self.vectors)
        self.search = ExactSearch(index)

    def __call__(self, requests: Sequence[SearchRequest]) -> list[SearchHits]:
        """Search for several requests in one pass over the vectors."""
        queries = normalize_rows(np.concatenate([request.vectors for request in requests]))
        most = min(max(request.k for request in requests), len(self.vectors))
        scores, rows = self.search(queries, most)
        found, start = [], 0
        for request in requests:
            part = slice(start, start := start + len(request.vectors))
            found.append(SearchHits(scores[part, : request.k], rows[part, : request.k]))
        return found


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as e:
        raise MissingExtra("faiss-cpu", "serve", "search") from e
    return faiss

r"""Exact nearest neighbours by cosine, with scores that depend on the two vectors alone.

FAISS adds in an order that depends on how many queries come at once. It finds the candidates, some more than asked for; their scores
are then computed pair by pair,

$$ s(q, x) = \sum_i q_i x_i \quad \text{in float64, rounded once} $$

and sorted, equal ones by row. So the answer to a query is the same to the last bit, alone or among others. (Of more than `SPARE` rows
that tie with the last hit, FAISS chooses.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from nearfar.core.errors import MissingExtra

SPARE = 8
"""Candidates beyond k: rounding moves a pair by few ranks."""


class Query(NamedTuple):
    """One request: its vectors and how many neighbours each shall have."""

    vectors: Float32[np.ndarray, "q d"]
    k: int


class Found(NamedTuple):
    """Rows and scores, nearest first."""

    scores: Float32[np.ndarray, "q k"]
    rows: Int64[np.ndarray, "q k"]


def unit(x: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Rows of length one; a row of zeros stays."""
    length = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float64))[:, None]
    return (x / np.maximum(length, np.finfo(np.float32).tiny)).astype(np.float32)


class Exact:
    """All vectors in memory."""

    def __init__(self, vectors: Float32[np.ndarray, "n d"]):
        self.vectors = unit(vectors)
        self.index: Any = _faiss().IndexFlatIP(vectors.shape[1])
        self.index.add(self.vectors)

    def __call__(self, requests: Sequence[Query]) -> list[Found]:
        """Several requests in one pass over the vectors."""
        queries = unit(np.concatenate([request.vectors for request in requests]))
        most = min(max(request.k for request in requests) + SPARE, len(self.vectors))
        _, rows = self.index.search(queries, most)
        found, start = [], 0
        for request in requests:
            part = slice(start, start := start + len(request.vectors))
            found.append(self._sorted(queries[part], rows[part, : request.k + SPARE], request.k))
        return found

    def _sorted(self, queries: Float32[np.ndarray, "q d"], rows: Int64[np.ndarray, "q c"], k: int) -> Found:
        scores = np.empty(rows.shape, dtype=np.float32)
        for start in range(0, len(rows), 256):  # float64 copies of the candidates, a few megabytes at a time
            part = slice(start, start + 256)
            scores[part] = np.einsum("qd,qcd->qc", queries[part].astype(np.float64), self.vectors[rows[part]].astype(np.float64))
        order = np.lexsort((rows, -scores))[:, :k]
        return Found(np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1))


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as e:
        raise MissingExtra("faiss-cpu", "serve", "search") from e
    return faiss

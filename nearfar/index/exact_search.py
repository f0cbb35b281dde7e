"""Exact search with results that depend only on the vectors.

The results are the same in every batch, and tied rows are in row order.

FAISS sums in an order that depends on the number of queries in a batch, and returns tied rows in any order.
Here it only finds candidates, some more than requested. Their scores are then computed pair by pair in
float64, rounded once and sorted. Ties are sorted by row.

The rounding errors of FAISS are bounded. If the last candidate is not worse than the k-th by more than two
such errors, a row that was not fetched could belong to the result. More candidates are then fetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

EXTRA_CANDIDATES = 8
"""Number of candidates beyond k that are fetched at first."""
REFETCH_FACTOR = 8
"""Factor by which the number of candidates grows if it was too small."""
CANDIDATES_PER_BLOCK = 1 << 22
"""Number of candidates that are held in memory at once."""
VECTOR_PAIRS_PER_BLOCK = 1 << 9
"""Number of pairs of float64 vectors at once, small enough for the CPU cache."""
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)

ScoredRows = tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]
"""Scores and positions (q, k), the nearest first."""


class ExactSearch:
    """Exact search in a FAISS `IndexFlat`.

    L2 scores are distances, not their squares.
    """

    def __init__(self, flat_index: Any):
        import faiss

        self.flat_index, self.is_l2 = flat_index, flat_index.metric_type == faiss.METRIC_L2
        self.vectors = faiss.rev_swig_ptr(flat_index.get_xb(), flat_index.ntotal * flat_index.d).reshape(
            -1, flat_index.d
        )  # a view of FAISS memory: valid until rows change
        squares = np.einsum("nd,nd->n", self.vectors, self.vectors, dtype=np.float64)
        self.max_norm = float(np.sqrt(squares.max(initial=0.0)))

    def __call__(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return the k nearest positions of each query.

        k is at most the number of vectors.
        """
        return self._search(queries, k, k + EXTRA_CANDIDATES)

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int, fetched: int) -> ScoredRows:
        fetched = min(fetched, len(self.vectors))
        scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        size = max(1, CANDIDATES_PER_BLOCK // fetched)
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            scores[part], places[part] = self._search_part(queries[part], k, fetched)
        return scores, places

    def _search_part(self, queries: Float32[np.ndarray, "q d"], k: int, fetched: int) -> ScoredRows:
        if fetched == len(self.vectors):
            return self._best(queries, np.broadcast_to(np.arange(fetched), (len(queries), fetched)), k)
        rough, candidates = self.flat_index.search(queries, fetched)
        scores, places = self._best(queries, candidates, k)
        # Overflowed scores decide nothing. Positions of -1 stand for such scores.
        with np.errstate(invalid="ignore"):
            decided = (np.abs(rough[:, -1] - rough[:, k - 1]) > 2 * self._bound_error(queries)) & (candidates[:, -1] >= 0)
        if not decided.all():
            scores[~decided], places[~decided] = self._search(queries[~decided], k, REFETCH_FACTOR * fetched)
        return scores, places

    def _best(self, queries: Float32[np.ndarray, "q d"], candidates: Int64[np.ndarray, "q c"], k: int) -> ScoredRows:
        scores = self._scores(queries, candidates)
        order = np.lexsort((candidates, scores if self.is_l2 else -scores))[:, :k]
        return np.take_along_axis(scores, order, 1), np.take_along_axis(candidates, order, 1)

    def _scores(self, queries: Float32[np.ndarray, "q d"], places: Int64[np.ndarray, "q c"]) -> Float32[np.ndarray, "q c"]:
        query = np.repeat(np.arange(len(queries)), places.shape[1])
        place, scores = places.ravel(), np.empty(places.size, np.float32)
        queries = queries.astype(np.float64)
        for start in range(0, len(place), VECTOR_PAIRS_PER_BLOCK):
            part = slice(start, start + VECTOR_PAIRS_PER_BLOCK)
            a, b = queries[query[part]], self.vectors[place[part]].astype(np.float64)  # (p, d)
            with np.errstate(over="ignore"):  # float32 may overflow: infinite scores are sorted too
                scores[part] = _distances(a, b) if self.is_l2 else np.einsum("pd,pd->p", a, b)
        return scores.reshape(places.shape)

    def _bound_error(self, queries: Float32[np.ndarray, "q d"]) -> np.ndarray:
        """Bound the error of the FAISS scores of each query.

        The bound holds for any order of the sums.
        """
        length = np.sqrt(np.einsum("qd,qd->q", queries, queries, dtype=np.float64))
        scale = (length + self.max_norm) ** 2 if self.is_l2 else length * self.max_norm
        return (self.flat_index.d + 4) * FLOAT32_EPSILON * scale


def _distances(a: Float64[np.ndarray, "p d"], b: Float64[np.ndarray, "p d"]) -> Float64[np.ndarray, " p"]:
    difference = a - b
    return np.sqrt(np.einsum("pd,pd->p", difference, difference))

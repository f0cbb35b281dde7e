r"""Exact search whose results depend on the vectors alone: the same in every batch, tied rows in row order.

FAISS adds in an order that depends on how many queries come at once, and gives tied rows in any order. It only finds candidates here,
some more than asked for. Their scores are then computed pair by pair in float64, rounded once, and sorted; equal ones by row.

Rounding errors of FAISS are bounded. Where the last candidate is not worse than the k-th by more than two such errors, a row that was not
fetched could belong to the answer, and more candidates are fetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

EXTRA_CANDIDATES = 8
"""Candidates beyond k that are fetched at first."""
REFETCH_FACTOR = 8
"""How many times more are fetched where these do not decide."""
CANDIDATES_PER_BLOCK = 1 << 22
"""Candidates that are held at a time."""
VECTOR_PAIRS_PER_BLOCK = 1 << 9
"""Pairs of vectors that are held in float64 at a time: few, so that they stay in a cache."""
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)

ScoredRows = tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]
"""Scores and places, the nearest first."""


class ExactSearch:
    """Exact search in a FAISS `IndexFlat`. L2 scores are distances, not their squares."""

    def __init__(self, flat_index: Any):
        import faiss

        self.flat_index, self.is_l2 = flat_index, flat_index.metric_type == faiss.METRIC_L2
        self.vectors = faiss.rev_swig_ptr(flat_index.get_xb(), flat_index.ntotal * flat_index.d).reshape(
            -1, flat_index.d
        )  # a view: valid until rows change
        squares = np.einsum("nd,nd->n", self.vectors, self.vectors, dtype=np.float64)
        self.max_norm = float(np.sqrt(squares.max(initial=0.0)))

    def __call__(self, queries: Float32[np.ndarray, "q d"], k: int) -> ScoredRows:
        """Return the k nearest places of each query, k at most the number of vectors."""
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
        with np.errstate(invalid="ignore"):  # a score that overflowed decides nothing, nor does a place of -1, which stands for one
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
            with np.errstate(over="ignore"):  # of float32: infinite scores are sorted too
                scores[part] = _distances(a, b) if self.is_l2 else np.einsum("pd,pd->p", a, b)
        return scores.reshape(places.shape)

    def _bound_error(self, queries: Float32[np.ndarray, "q d"]) -> np.ndarray:
        """Bound the error of FAISS's scores of each query, for any order of its sums."""
        length = np.sqrt(np.einsum("qd,qd->q", queries, queries, dtype=np.float64))
        scale = (length + self.max_norm) ** 2 if self.is_l2 else length * self.max_norm
        return (self.flat_index.d + 4) * FLOAT32_EPSILON * scale


def _distances(a: Float64[np.ndarray, "p d"], b: Float64[np.ndarray, "p d"]) -> Float64[np.ndarray, " p"]:
    difference = a - b
    return np.sqrt(np.einsum("pd,pd->p", difference, difference))

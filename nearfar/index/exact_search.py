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

SPARE = 8
"""Candidates beyond k that are fetched at first."""
GROWTH = 8
"""How many times more are fetched where these do not decide."""
AT_ONCE = 1 << 22
"""Candidates that are held at a time."""
PAIRS = 1 << 9
"""Pairs of vectors that are held in float64 at a time: few, so that they stay in a cache."""
EPSILON = float(np.finfo(np.float32).eps)

Found = tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]
"""Scores and places, the nearest first."""


class ExactSearch:
    """Exact search in a FAISS `IndexFlat`. L2 scores are distances, not their squares."""

    def __init__(self, flat: Any):
        import faiss

        self.flat, self.l2 = flat, flat.metric_type == faiss.METRIC_L2
        self.vectors = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(-1, flat.d)  # a view: valid until rows change
        squares = np.einsum("nd,nd->n", self.vectors, self.vectors, dtype=np.float64)
        self.longest = float(np.sqrt(squares.max(initial=0.0)))

    def __call__(self, queries: Float32[np.ndarray, "q d"], k: int) -> Found:
        """Return the k nearest places of each query, k at most the number of vectors."""
        return self._search(queries, k, k + SPARE)

    def _search(self, queries: Float32[np.ndarray, "q d"], k: int, fetched: int) -> Found:
        fetched = min(fetched, len(self.vectors))
        scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        size = max(1, AT_ONCE // fetched)
        for start in range(0, len(queries), size):
            part = slice(start, start + size)
            scores[part], places[part] = self._search_part(queries[part], k, fetched)
        return scores, places

    def _search_part(self, queries: Float32[np.ndarray, "q d"], k: int, fetched: int) -> Found:
        if fetched == len(self.vectors):
            return self._best(queries, np.broadcast_to(np.arange(fetched), (len(queries), fetched)), k)
        rough, candidates = self.flat.search(queries, fetched)
        scores, places = self._best(queries, candidates, k)
        with np.errstate(invalid="ignore"):  # a score that overflowed decides nothing, nor does a place of -1, which stands for one
            decided = (np.abs(rough[:, -1] - rough[:, k - 1]) > 2 * self._error(queries)) & (candidates[:, -1] >= 0)
        if not decided.all():
            scores[~decided], places[~decided] = self._search(queries[~decided], k, GROWTH * fetched)
        return scores, places

    def _best(self, queries: Float32[np.ndarray, "q d"], candidates: Int64[np.ndarray, "q c"], k: int) -> Found:
        scores = self._scores(queries, candidates)
        order = np.lexsort((candidates, scores if self.l2 else -scores))[:, :k]
        return np.take_along_axis(scores, order, 1), np.take_along_axis(candidates, order, 1)

    def _scores(self, queries: Float32[np.ndarray, "q d"], places: Int64[np.ndarray, "q c"]) -> Float32[np.ndarray, "q c"]:
        query = np.repeat(np.arange(len(queries)), places.shape[1])
        place, scores = places.ravel(), np.empty(places.size, np.float32)
        queries = queries.astype(np.float64)
        for start in range(0, len(place), PAIRS):
            part = slice(start, start + PAIRS)
            a, b = queries[query[part]], self.vectors[place[part]].astype(np.float64)  # (p, d)
            with np.errstate(over="ignore"):  # of float32: infinite scores are sorted too
                scores[part] = _distances(a, b) if self.l2 else np.einsum("pd,pd->p", a, b)
        return scores.reshape(places.shape)

    def _error(self, queries: Float32[np.ndarray, "q d"]) -> np.ndarray:
        """Bound the error of FAISS's scores of each query, for any order of its sums."""
        length = np.sqrt(np.einsum("qd,qd->q", queries, queries, dtype=np.float64))
        scale = (length + self.longest) ** 2 if self.l2 else length * self.longest
        return (self.flat.d + 4) * EPSILON * scale


def _distances(a: Float64[np.ndarray, "p d"], b: Float64[np.ndarray, "p d"]) -> Float64[np.ndarray, " p"]:
    difference = a - b
    return np.sqrt(np.einsum("pd,pd->p", difference, difference))

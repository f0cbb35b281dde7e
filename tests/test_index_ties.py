"""Exact search puts tied rows in row order: with many duplicates, in any batch, and after deletes."""

from __future__ import annotations

import numpy as np
import pytest

from nearfar.index import METRICS, build_index, open_index
from nearfar.server.neighbors import ExactCosineSearch, SearchRequest

K = 5


def duplicates(n: int = 400, d: int = 13, seed: int = 0) -> np.ndarray:
    """Ten different vectors, each many times, in random order."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(10, d)).astype(np.float32)[draw.integers(10, size=n)]


def naive(vectors: dict[int, np.ndarray], query: np.ndarray, k: int, metric: str) -> list[int]:
    """Rows of the k nearest, equal ones by row, in float64 rounded to float32."""
    found = []
    for row, vector in vectors.items():
        a, b = vector.astype(float), query.astype(float)
        long = np.linalg.norm(a) * np.linalg.norm(b) if metric == "cosine" else 1.0
        found.append((np.float32(((a - b) ** 2).sum() if metric == "l2" else -(a @ b) / long).round(5), row))
    return [row for _, row in sorted(found)[:k]]


@pytest.mark.parametrize("metric", METRICS)
def test_tied_rows_are_the_lowest_numbers_in_any_batch_and_after_deletes(metric, tmp_path):
    x, queries = duplicates(), duplicates(60, seed=1) + np.float32(0.25)
    build_index(x, None, tmp_path / "index", index_type="exact", metric=metric)
    index, left = open_index(tmp_path / "index"), dict(enumerate(x))
    for deleted in ([], list(range(0, 200, 3)), [1, 399]):
        if deleted:
            index.delete(deleted)
            left = {row: vector for row, vector in left.items() if row not in deleted}
        together = index.search(queries, K)
        assert together.rows.tolist() == [naive(left, query, K, metric) for query in queries]
        for i in (0, 7, 59):
            alone = index.search(queries[i : i + 1], K)
            assert alone.rows.tolist() == together.rows[i : i + 1].tolist()
            assert alone.scores.tolist() == together.scores[i : i + 1].tolist()
        everything = index.search(queries[:3], len(left))
        assert everything.rows[:, :K].tolist() == together.rows[:3].tolist()
        assert sorted(everything.rows[0].tolist()) == sorted(left)
    reopened = open_index(tmp_path / "index").search(queries, K)
    assert reopened.rows.tolist() == together.rows.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_rows_added_later_come_after_equal_ones(metric):
    x = duplicates(50)
    index = build_index(x, None, None, index_type="exact", metric=metric)
    index.delete(range(0, 50, 2))
    index.add(x)
    left = {i: x[i % 50] for i in range(100) if i >= 50 or i % 2}
    assert index.search(x[:4], 30).rows.tolist() == [naive(left, query, 30, metric) for query in x[:4]]


def test_values_that_overflow_a_score_still_find_every_row():
    index = build_index(
        np.array([[3e30, 0.0], [1.0, 1.0], [3e30, 0.0], [0.0, 2.0]] * 8, np.float32), None, None, index_type="exact", metric="l2"
    )
    hits = index.search(np.array([[1.0, 1.0]], np.float32), 20)
    assert hits.rows[0, :16].tolist() == [*range(1, 32, 4), *range(3, 32, 4)]
    assert hits.rows[0, 16:].tolist() == [0, 2, 4, 6]


def test_the_server_returns_the_lowest_rows_of_a_tie():
    x = duplicates()
    search = ExactCosineSearch(x)
    answers = search([SearchRequest(x[:30], 4), SearchRequest(x[:2], 9)])
    assert answers[0].rows.tolist() == [naive(dict(enumerate(x)), query, 4, "cosine") for query in x[:30]]
    assert answers[1].rows.tolist() == [naive(dict(enumerate(x)), query, 9, "cosine") for query in x[:2]]
    assert search([SearchRequest(x[5:6], 4)])[0].rows.tolist() == answers[0].rows[5:6].tolist()

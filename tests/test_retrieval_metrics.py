"""Retrieval metrics against loops, scikit-learn and a bootstrap written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from nearfar.core import NearfarError, RandomKey
from nearfar.evaluate.retrieval import average_precision, paired_bootstrap, reciprocal_rank, summarize_retrieval, top_k_accuracy

TABLES = st.integers(1, 6).flatmap(lambda k: st.lists(st.lists(st.booleans(), min_size=k, max_size=k), min_size=1, max_size=5))


@given(TABLES)
def test_top_k_and_reciprocal_rank_agree_with_a_loop(rows):
    found = torch.tensor(rows)
    for k in range(1, found.shape[1] + 1):
        assert top_k_accuracy(found, k).tolist() == [float(any(row[:k])) for row in rows]
    assert reciprocal_rank(found).tolist() == [next((1 / (i + 1) for i, hit in enumerate(row) if hit), 0.0) for row in rows]


@given(TABLES)
def test_average_precision_agrees_with_scikit_learn(rows):
    found = torch.tensor(rows)
    ours = average_precision(found, found.sum(1))
    for row, value in zip(rows, ours.tolist(), strict=True):
        theirs = average_precision_score(row, -np.arange(len(row))) if any(row) else 0.0
        assert value == pytest.approx(theirs, abs=1e-12)


def test_average_precision_counts_relevant_passages_that_were_not_found():
    found = torch.tensor([[True, False, True]])
    assert average_precision(found, torch.tensor([4])).tolist() == pytest.approx([(1 + 2 / 3) / 4])


def test_summary_leaves_out_ranks_that_were_not_searched():
    found = torch.tensor([[False, True], [True, False]])
    assert summarize_retrieval(found, torch.tensor([1, 1]), ks=(1, 2, 20)) == {"top-1": 0.5, "top-2": 1.0, "MRR": 0.75, "MAP": 0.75}
    with pytest.raises(NearfarError, match="at least 5"):
        top_k_accuracy(found, 5)


def test_bootstrap_gives_the_error_of_a_mean():
    generator = torch.Generator().manual_seed(0)
    gain = 0.1 + torch.randn(400, generator=generator, dtype=torch.float64)
    base = torch.randn(400, generator=generator, dtype=torch.float64)
    found = paired_bootstrap(base + gain, base, RandomKey(0))
    expected = float(gain.std()) / 20
    assert found.difference == pytest.approx(float(gain.mean()))
    assert found.standard_error == pytest.approx(expected, rel=0.05)
    assert (found.interval_low, found.interval_high) == pytest.approx(
        (found.difference - 1.96 * expected, found.difference + 1.96 * expected), abs=0.15 * expected
    )


def test_bootstrap_over_groups_is_wider_where_questions_of_a_group_agree():
    by_article = torch.arange(20, dtype=torch.float64).repeat_interleave(10) % 3 - 1
    groups, zero = torch.arange(20).repeat_interleave(10) * 7, torch.zeros(200, dtype=torch.float64)
    alone, together = (paired_bootstrap(by_article, zero, RandomKey(0), groups=g) for g in (None, groups))
    assert together.difference == alone.difference
    assert together.standard_error == pytest.approx(alone.standard_error * 10**0.5, rel=0.1)


def test_bootstrap_is_keyed_and_pairs_must_match():
    a, b = torch.linspace(0, 1, 30), torch.linspace(0, 0.9, 30)
    assert paired_bootstrap(a, b, RandomKey(1), 200) == paired_bootstrap(a, b, RandomKey(1), 200)
    assert paired_bootstrap(a, b, RandomKey(1), 200) != paired_bootstrap(a, b, RandomKey(2), 200)
    assert paired_bootstrap(a, a, RandomKey(1), 200).interval_high == 0
    with pytest.raises(NearfarError, match="same questions"):
        paired_bootstrap(a[:0], b[:0], RandomKey(0))

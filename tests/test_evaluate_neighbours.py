"""kNN against a loop and against scikit-learn; neighbors for the report."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from nearfar.core import NearfarError
from nearfar.evaluate import find_nearest_neighbors, knn
from nearfar.evaluate.input_checks import check_labels
from nearfar.evaluate.knn import QUERIES_PER_BLOCK


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    x, y = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    return x[:1200], y[:1200], x[1200:], y[1200:]


def naive(train_x, train_y, test_x, test_y, k, tau) -> float:
    correct = 0
    for x, y in zip(test_x.tolist(), test_y.tolist(), strict=True):
        scored = []
        for a, label in zip(train_x.tolist(), train_y.tolist(), strict=True):
            dot = sum(p * q for p, q in zip(x, a, strict=True))
            scored.append((dot / math.dist(x, [0] * len(x)) / math.dist(a, [0] * len(a)), label))
        votes: dict[int, float] = {}
        for similarity, label in sorted(scored, key=lambda s: -s[0])[:k]:
            votes[label] = votes.get(label, 0.0) + math.exp(similarity / tau)
        correct += max(votes, key=lambda c: votes[c]) == y
    return correct / len(test_x)


@pytest.mark.parametrize(("k", "tau"), [(1, 0.07), (5, 0.07), (20, 0.5)])
def test_knn_is_the_naive_loop(k, tau):
    g = torch.Generator().manual_seed(k)
    train_y, test_y = torch.randint(0, 4, (60,), generator=g) * 7 - 3, torch.randint(0, 4, (40,), generator=g) * 7 - 3
    train_x = torch.randn(60, 5, generator=g) + train_y[:, None] * 0.1
    test_x = torch.randn(40, 5, generator=g) + test_y[:, None] * 0.1
    found = knn(train_x, train_y, test_x, test_y, k, tau)
    assert found.accuracy == naive(train_x, train_y, test_x, test_y, k, tau)
    assert (found.k, found.temperature) == (k, tau)


def test_knn_agrees_with_scikit_learn(digits):
    train_x, train_y, test_x, test_y = digits
    # On unit vectors cos = 1 - d^2 / 2, so Euclidean neighbors are cosine neighbors.
    unit = [torch.nn.functional.normalize(x.double(), dim=1).numpy() for x in (train_x, test_x)]
    reference = KNeighborsClassifier(20, weights=lambda d: np.exp((1 - d**2 / 2) / 0.07), algorithm="brute").fit(unit[0], train_y.numpy())
    found = knn(train_x, train_y, test_x, test_y, k=20, temperature=0.07)
    assert found.accuracy == pytest.approx(reference.score(unit[1], test_y.numpy()), abs=1e-12)
    assert found.accuracy > 0.9


def test_chunks_and_arrays_change_nothing(digits, monkeypatch):
    train_x, train_y, test_x, test_y = digits
    whole = knn(train_x, train_y, test_x, test_y)
    assert len(test_x) < QUERIES_PER_BLOCK
    monkeypatch.setattr(sys.modules["nearfar.evaluate.knn"], "QUERIES_PER_BLOCK", 37)
    assert knn(*(t.numpy() for t in digits)) == whole


def test_k_is_clipped_and_says_so(digits):
    train_x, train_y, test_x, test_y = digits
    found = knn(train_x[:7], train_y[:7], test_x, test_y, k=20)
    assert (found.k, found.requested_k) == (7, 20)


def test_a_tiny_temperature_is_the_nearest_neighbour(digits):
    train_x, train_y, test_x, test_y = digits
    assert knn(train_x, train_y, test_x, test_y, k=50, temperature=1e-6).accuracy == knn(train_x, train_y, test_x, test_y, k=1).accuracy


def test_nearest_finds_a_sample_itself_first(digits):
    train_x = digits[0]
    similarity, index = find_nearest_neighbors(train_x, train_x[10:20], k=3)
    assert index[:, 0].tolist() == list(range(10, 20))
    assert torch.allclose(similarity[:, 0], torch.ones(10))
    assert (similarity.diff(dim=1) <= 0).all()


def test_no_neighbour_and_no_temperature_are_refused(digits):
    train_x, train_y, test_x, test_y = digits
    for k in (0, -3):
        with pytest.raises(NearfarError, match=f"`k` must be at least 1, got {k}"):
            knn(train_x, train_y, test_x, test_y, k=k)
        with pytest.raises(NearfarError, match=f"`k` must be at least 1, got {k}"):
            find_nearest_neighbors(train_x, test_x, k)
    for tau in (0.0, -0.1, float("nan")):
        with pytest.raises(NearfarError, match="`temperature` must be positive"):
            knn(train_x, train_y, test_x, test_y, temperature=tau)


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"]), np.array(["cat", None], dtype=object), np.array([0.5, 1.0])])
def test_labels_that_are_no_whole_numbers_are_refused(labels):
    with pytest.raises(NearfarError, match=r"training labels: expected whole numbers, got .* turns classes into numbers"):
        check_labels(labels, torch.zeros(2, 3), "training labels")


def test_features_that_diverged_are_named(digits):
    train_x, train_y, test_x, test_y = digits
    broken = test_x.clone()
    broken[3, 4] = float("nan")
    with pytest.raises(NearfarError, match="test features: 1 of 597 rows hold NaN"):
        knn(train_x, train_y, broken, test_y)

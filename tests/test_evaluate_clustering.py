"""Clustering scores against scikit-learn, brute force and known answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch.nn import functional as F

from nearfar.core import DataError, RandomKey
from nearfar.core.kmeans import kmeans
from nearfar.evaluate.clustering import MAX_KMEANS_ITERATIONS, cluster_scores, compare_clusters, count_overlaps

KEY = RandomKey(5)("test")
ASSIGNMENTS = st.integers(1, 5).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=60)
)


def digits(count: int = 1797) -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return data.data[:count].astype(np.float32), data.target[:count]


def best_accuracy(clusters: np.ndarray, labels: np.ndarray) -> float:
    """Try every one-to-one assignment of at most five clusters to at most five classes."""
    return max((np.array(order)[clusters] == labels).mean() for order in itertools.permutations(range(5)))


@given(ASSIGNMENTS)
def test_scores_are_those_of_scikit_learn_and_brute_force(pairs):
    clusters, labels = np.array(pairs).T
    found = compare_clusters(clusters, labels)
    assert found.normalized_mutual_information == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-9)
    assert found.adjusted_rand_index == pytest.approx(adjusted_rand_score(labels, clusters), abs=1e-12)
    assert found.accuracy == pytest.approx(best_accuracy(clusters, labels), abs=1e-12)


@given(ASSIGNMENTS)
def test_overlaps_are_those_of_a_loop(pairs):
    clusters, labels = np.array(pairs).T
    counts = count_overlaps(torch.from_numpy(clusters), torch.from_numpy(labels))
    for (row, cluster), (column, label) in itertools.product(enumerate(np.unique(clusters)), enumerate(np.unique(labels))):
        assert counts[row, column] == sum(pair == (cluster, label) for pair in pairs)
    assert counts.sum() == len(pairs)


@given(st.integers(1, 30), st.integers(0, 99))
def test_perfect_clusters_score_one_under_any_names(k, seed):
    labels = KEY("labels", seed).integers(np.arange(100), k)
    found = compare_clusters(KEY("names", seed).permutation(k)[labels] * 7 - 50, labels)
    assert (found.normalized_mutual_information, found.adjusted_rand_index, found.accuracy) == pytest.approx((1, 1, 1), abs=1e-12)


@given(ASSIGNMENTS, st.integers(0, 99))
def test_names_of_clusters_do_not_matter(pairs, seed):
    clusters, labels = np.array(pairs).T
    a, b = compare_clusters(clusters, labels), compare_clusters(100 - KEY("names", seed).permutation(5)[clusters], labels)
    assert a.normalized_mutual_information == pytest.approx(b.normalized_mutual_information, abs=1e-12)
    assert (a.adjusted_rand_index, a.accuracy) == (b.adjusted_rand_index, b.accuracy)


def test_random_clusters_score_near_zero():
    n, slots = 100_000, np.arange(100_000)
    labels, clusters = KEY("classes").integers(slots, 10), KEY("clusters").integers(slots, 10)
    found = compare_clusters(clusters, labels)
    assert abs(found.adjusted_rand_index) < 1e-3
    assert found.normalized_mutual_information < 1e-3
    assert 0.1 <= found.accuracy < 0.1 + 10 / n**0.5


def test_large_samples_do_not_overflow():
    labels = torch.arange(2).repeat_interleave(200_000)  # 8e10 pairs, whose square exceeds 64 bits
    clusters = labels.clone()
    clusters[:20_000] = 1
    found = compare_clusters(clusters, labels)
    assert found.accuracy == pytest.approx(0.95)
    assert found.adjusted_rand_index == pytest.approx(adjusted_rand_score(labels, clusters), abs=1e-12)


def test_more_clusters_than_classes_lose_accuracy():
    found = compare_clusters(np.arange(6), np.array([0, 0, 0, 1, 1, 1]))
    assert found.accuracy == pytest.approx(2 / 6)
    assert found.adjusted_rand_index == pytest.approx(0)
    assert found.normalized_mutual_information == pytest.approx(2 * np.log(2) / (np.log(2) + np.log(6)))


def test_separated_classes_are_found():
    centers = 10 * torch.eye(8)
    labels = torch.arange(400) % 8
    features = centers[labels] + KEY("noise").normal(torch.arange(400), 8)
    found = cluster_scores(features, labels, rng_key=KEY)
    assert (found.normalized_mutual_information, found.adjusted_rand_index, found.accuracy) == pytest.approx((1, 1, 1))
    assert (found.num_clusters, found.restarts, found.normalize) == (8, 10, True)


def test_digits_score_as_with_scikit_learns_kmeans():
    x, y = digits()
    found = cluster_scores(x, y, rng_key=KEY, normalize=False)
    theirs = KMeans(10, n_init=10, random_state=0).fit(x)
    assert found.inertia == pytest.approx(theirs.inertia_, rel=0.002)
    assert found.adjusted_rand_index == pytest.approx(adjusted_rand_score(y, theirs.labels_), abs=0.03)
    assert 0.72 < found.normalized_mutual_information < 0.77
    assert 0.76 < found.accuracy < 0.82


def test_the_restart_with_the_smallest_inertia_counts():
    x, y = digits(500)
    rows = F.normalize(torch.from_numpy(x), dim=1)
    runs = [kmeans(rows, 10, KEY("clustering", i), MAX_KMEANS_ITERATIONS) for i in range(6)]
    inertias = [float(run.inertia) for run in runs]
    best = int(np.argmin(inertias))
    found = cluster_scores(x, y, rng_key=KEY, restarts=6)
    assert found.inertia == inertias[best] < max(inertias)
    assert found.accuracy == compare_clusters(runs[best].cluster_ids, y).accuracy
    first = cluster_scores(x, y, rng_key=KEY, restarts=1)
    assert (first.inertia, first.restarts) == (inertias[0], 1)
    assert cluster_scores(x, y, rng_key=RandomKey(6), restarts=1).inertia != first.inertia


def test_normalized_features_do_not_depend_on_lengths():
    x, y = digits(300)
    lengths = 2.0 ** KEY("lengths").integers(np.arange(300), 9, 1)  # powers of two leave the directions exact
    scaled = (x * lengths).astype(np.float32)
    assert cluster_scores(scaled, y, rng_key=KEY, restarts=2) == cluster_scores(x, y, rng_key=KEY, restarts=2)
    plain = [cluster_scores(rows, y, rng_key=KEY, restarts=2, normalize=False) for rows in (x, scaled)]
    assert plain[0].adjusted_rand_index > plain[1].adjusted_rand_index + 0.2


def test_wrong_arguments_are_named():
    x, y = digits(20)
    with pytest.raises(DataError, match="`restarts` must be at least 1, got 0"):
        cluster_scores(x, y, rng_key=KEY, restarts=0)
    with pytest.raises(DataError, match="cluster ids: expected at least one sample"):
        compare_clusters(np.empty(0, np.int64), np.empty(0, np.int64))
    x[3] = np.nan
    with pytest.raises(DataError, match="first is row 3"):
        cluster_scores(x, y, rng_key=KEY)

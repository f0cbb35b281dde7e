r"""Clustering of representations: k-means on features, compared with the classes.

Three scores compare clusters with classes. None depends on the numbers that clusters carry:

- Normalized mutual information, \( 2 I(a, y) / (H(a) + H(y)) \), between 0 and 1 (Strehl & Ghosh 2002). The
  denominator is the arithmetic mean of the entropies, as in scikit-learn. Papers before 2019 often divide by
  the geometric mean, which gives slightly larger values.
- Adjusted Rand index: agreement about pairs of samples, 1 if perfect and 0 on average for random clusters
  (Hubert & Arabie 1985).
- Accuracy of the best one-to-one assignment of clusters to classes, found by the Hungarian algorithm. DEC
  (Xie et al. 2016) made it the usual score of deep clustering. The assignment uses the labels of the
  evaluated samples, so the accuracy of random clusters lies above 1 / k.

The protocol of `cluster_scores` is that of the literature on deep clustering (DEC; SCAN, Van Gansbeke et al.
2020): the number of clusters is the number of classes, the labels serve only for the scores, and features
have unit length. Of several restarts, the one with the smallest inertia counts. That choice needs no labels.
Papers differ in the split: DEC clusters training and test samples together, SCAN reports the test split.
State the split with the numbers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError, RandomKey
from nearfar.core.kmeans import kmeans
from nearfar.evaluate.input_checks import check_features, check_labels

MAX_KMEANS_ITERATIONS = 300
"""Largest number of iterations of each k-means, as in scikit-learn."""


@dataclass(frozen=True)
class ClusterAgreement:
    """Agreement of clusters with classes.

    Attributes:
        normalized_mutual_information: Between 0 and 1, with the arithmetic mean of the entropies.
        adjusted_rand_index: 1 if perfect, 0 on average for random clusters.
        accuracy: Accuracy of the best one-to-one assignment of clusters to classes.
    """

    normalized_mutual_information: float
    adjusted_rand_index: float
    accuracy: float


@dataclass(frozen=True)
class ClusteringResult(ClusterAgreement):
    """Agreement of k-means clusters with classes, and the protocol.

    Attributes:
        num_clusters: Number of clusters, equal to the number of classes.
        inertia: Sum of squared distances between samples and their centers, in the best restart.
        restarts: Number of restarts.
        normalize: True if features had unit length.
    """

    num_clusters: int
    inertia: float
    restarts: int
    normalize: bool


def cluster_scores(
    features: Float[Tensor, "n d"] | Float[np.ndarray, "n d"],
    labels: Integer[Tensor, " n"] | Integer[np.ndarray, " n"],
    *,
    rng_key: RandomKey,
    restarts: int = 10,
    normalize: bool = True,
) -> ClusteringResult:
    """Cluster features with k-means and compare the clusters with the classes.

    The number of clusters is the number of classes. Time and memory are linear in the number of samples.

    Args:
        features: Features (n, d).
        labels: Labels (n,).
        rng_key: Random key of the first centers.
        restarts: Number of k-means runs. The one with the smallest inertia counts.
        normalize: If True, scale features to unit length first. k-means then compares directions, as a search
            by cosine does.

    Returns:
        The scores, the inertia and the protocol.
    """
    if restarts < 1:
        raise DataError(f"`restarts` must be at least 1, got {restarts}")
    rows = check_features(features)
    truth = check_labels(labels, rows)
    if normalize:
        rows = F.normalize(rows, dim=1)
    num_clusters = len(truth.unique())
    runs = (kmeans(rows, num_clusters, rng_key("clustering", i), MAX_KMEANS_ITERATIONS) for i in range(restarts))
    best = min(runs, key=lambda found: float(found.inertia))
    agreement = dataclasses.asdict(compare_clusters(best.cluster_ids, truth))
    return ClusteringResult(**agreement, num_clusters=num_clusters, inertia=float(best.inertia), restarts=restarts, normalize=normalize)


def compare_clusters(
    cluster_ids: Integer[Tensor, " n"] | Integer[np.ndarray, " n"], labels: Integer[Tensor, " n"] | Integer[np.ndarray, " n"]
) -> ClusterAgreement:
    """Compare given clusters with classes.

    There may be more clusters than classes, or fewer. If there are more clusters than classes, the accuracy counts the samples of
    clusters without a class as errors.

    Args:
        cluster_ids: Cluster of each sample (n,), any integers.
        labels: Class of each sample (n,).
    """
    if not len(cluster_ids):
        raise DataError("cluster ids: expected at least one sample, got none")
    found = check_labels(cluster_ids, torch.empty(len(cluster_ids)), "cluster ids")
    counts = count_overlaps(found, check_labels(labels, found))
    return ClusterAgreement(_compute_mutual_information(counts), _compute_adjusted_rand(counts), _compute_accuracy(counts))


def count_overlaps(cluster_ids: Integer[Tensor, " n"], labels: Integer[Tensor, " n"]) -> Integer[np.ndarray, "k c"]:
    """Count the samples of each cluster and class.

    Clusters and classes are in ascending order of their numbers.
    """
    clusters, rows = cluster_ids.unique(return_inverse=True)
    classes, columns = labels.unique(return_inverse=True)
    counts = torch.bincount(rows * len(classes) + columns, minlength=len(clusters) * len(classes))
    return counts.view(len(clusters), len(classes)).cpu().numpy()


def _compute_mutual_information(counts: Integer[np.ndarray, "k c"]) -> float:
    """Compute the normalized mutual information. One cluster of one class counts as perfect."""
    joint = counts / counts.sum()
    clusters, classes = joint.sum(1), joint.sum(0)
    entropies = _compute_entropy(clusters) + _compute_entropy(classes)
    if entropies == 0:
        return 1.0
    mutual = entropies - _compute_entropy(joint.ravel())
    return float(np.clip(2 * mutual / entropies, 0, 1))


def _compute_entropy(p: Float[np.ndarray, " m"]) -> float:
    nonzero = p[p > 0]
    return float(-(nonzero * np.log(nonzero)).sum())


def _compute_adjusted_rand(counts: Integer[np.ndarray, "k c"]) -> float:
    """Compute the adjusted Rand index from numbers of pairs.

    Python's integers are exact for any number of samples.
    """
    together = _count_pairs(counts)
    same_cluster, same_class = _count_pairs(counts.sum(1)), _count_pairs(counts.sum(0))
    if together == same_cluster == same_class:
        return 1.0
    pairs = _count_pairs(counts.sum(keepdims=True))
    # (together - expected) / (mean - expected), with expected = same_cluster * same_class / pairs
    expected = same_cluster * same_class
    return 2 * (together * pairs - expected) / ((same_cluster + same_class) * pairs - 2 * expected)


def _count_pairs(sizes: Integer[np.ndarray, "..."]) -> int:
    """Count the pairs of different samples within groups of these sizes."""
    return sum(size * (size - 1) // 2 for size in sizes.ravel().tolist())


def _compute_accuracy(counts: Integer[np.ndarray, "k c"]) -> float:
    """Compute the share of samples in the class that their cluster is assigned to."""
    from scipy.optimize import linear_sum_assignment

    clusters, classes = linear_sum_assignment(counts, maximize=True)
    return float(counts[clusters, classes].sum() / counts.sum())

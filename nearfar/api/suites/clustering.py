"""Agreement of k-means clusters with the labels: NMI, adjusted Rand index, accuracy."""

from __future__ import annotations

from nearfar.api.suite_subject import Subject, SuiteRow
from nearfar.core import RandomKey
from nearfar.evaluate.clustering import cluster_scores


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    return subject.explain_missing_labels()


def measure(subject: Subject) -> list[SuiteRow]:
    """Cluster the test samples into as many clusters as there are classes."""
    labels, rows = subject.get_test_labels(), []
    for system, vectors in subject.get_test_vectors().items():
        found = cluster_scores(vectors, labels, rng_key=RandomKey(subject.seed)("evaluate", "clustering"))
        scores = {
            "NMI": found.normalized_mutual_information,
            "adjusted Rand index": found.adjusted_rand_index,
            "accuracy": found.accuracy,
        }
        rows += [SuiteRow("clustering", system, metric, value) for metric, value in scores.items()]
    subject.protocol["clustering"] = "k-means on unit vectors of the test split, best of 10 keyed starts, k = number of classes"
    return rows

"""Equal error rate: pairs of test samples accepted as one class by a threshold."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.api.suite_subject import Subject, SuiteRow
from nearfar.core import RandomKey
from nearfar.evaluate.verification import equal_error_rate
from nearfar.scores import cosine

MAX_VERIFIED_SAMPLES = 1500
"""Largest number of test samples. All their pairs are compared."""


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    return subject.explain_missing_labels()


def measure(subject: Subject) -> list[SuiteRow]:
    """Compare all pairs of drawn test samples by cosine."""
    labels = subject.get_test_labels()
    order = RandomKey(subject.seed)("evaluate", "verification").permutation(len(labels))[:MAX_VERIFIED_SAMPLES]
    chosen = torch.from_numpy(order)
    subject.protocol["verification"] = f"cosine of all pairs of {len(chosen):,} test samples; lower is better"
    return [
        SuiteRow("verification", system, "equal error rate", measure_pair_errors(vectors[chosen], labels[chosen]))
        for system, vectors in subject.get_test_vectors().items()
    ]


def measure_pair_errors(vectors: Tensor, labels: Tensor) -> float:
    """Return the equal error rate over all pairs of rows."""
    first, second = torch.triu_indices(len(labels), len(labels), offset=1)
    return equal_error_rate(cosine(vectors, vectors)[first, second], labels[first] == labels[second])

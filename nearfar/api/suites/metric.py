"""Metric learning: recall at 1 among the test samples, each compared with all others."""

from __future__ import annotations

from nearfar.api.suite_subject import Subject, SuiteRow, wilson_interval
from nearfar.evaluate.verification import recall_at_1


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    return subject.explain_missing_labels()


def measure(subject: Subject) -> list[SuiteRow]:
    """Measure recall at 1 by cosine, leave one out."""
    labels, rows = subject.get_test_labels(), []
    for system, vectors in subject.get_test_vectors().items():
        value = recall_at_1(vectors, labels)
        rows.append(SuiteRow("metric", system, "recall at 1", value, *wilson_interval(value, len(labels))))
    subject.protocol["metric"] = "cosine; each test sample is compared with all others of the split"
    return rows

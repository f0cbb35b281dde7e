"""Alignment, uniformity, effective rank and spread of the vectors. Needs no labels."""

from __future__ import annotations

import torch

from nearfar.api.suite_subject import Subject, SuiteRow
from nearfar.core import RandomKey
from nearfar.evaluate.feature_comparison import measure_geometry

COLUMNS = r"alignment|uniformity|effective_rank|spread"
KEY = "uniformity"


def measure(subject: Subject) -> list[SuiteRow]:
    """Measure vectors that have no result table, such as those of an index."""
    rows = []
    for system, features in subject.features.items():
        found = measure_geometry(torch.as_tensor(features.test), features.views, RandomKey(subject.seed)("evaluate"))
        rows += [SuiteRow("geometry", system, metric, value) for metric, value in found.items()]
    return rows

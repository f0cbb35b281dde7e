"""Two stored rows are measured again and compared with what is stored.

Trained numbers differ between processors: sums in another order round differently, and training amplifies that. With AVX-512, AVX2 or
neither, and with one thread or two, accuracies from 5 labels a class differ by at most 0.2 points, kNN by one of 359 test digits (0.28
points), and geometry by 1.4 %. The tolerances are about twice that. Another temperature, augmentation, data order or initialization
changes more. What is not trained must agree to 0.06 points: two of the 3,590 answers behind each accuracy from 5 labels a class.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from common import known
from stored_rows import load_script

FEW_LABELS, ALL_LABELS, UNTRAINED = 0.004, 0.006, 0.0006
"""Tolerances of accuracies, as shares."""
GEOMETRY = 0.03
"""Relative tolerance of alignment, uniformity, effective rank and spread."""
MEASURES = ("alignment", "uniformity", "effective_rank", "spread")


def stored(file: str, **by: Any) -> dict[str, Any]:
    """Return the row of a result file with these values."""
    (row,) = [r for r in known(file) if all(r[name] == value for name, value in by.items())]
    return row


def assert_same(new: dict[str, Any], old: dict[str, Any], trained: bool = True) -> None:
    """Compare accuracies and geometry within the tolerances."""
    few, others = (FEW_LABELS, ALL_LABELS) if trained else (UNTRAINED, UNTRAINED)
    assert new["few_labels"] == pytest.approx(old["few_labels"], abs=few)
    for name in [name for name in ("linear", "knn") if name in old]:
        assert new[name] == pytest.approx(old[name], abs=others), name
    for name in MEASURES:
        assert new[name] == pytest.approx(old[name], rel=GEOMETRY), name


@pytest.mark.slow
def test_supcon_on_digits_gives_the_stored_numbers():
    new, old = load_script("digits").row("supcon", 0), stored("digits", recipe="supcon", seed=0)
    assert load_script("digits").is_current(old)
    names = [result["representation"] for result in old["results"]]
    assert [result["representation"] for result in new["results"]] == names
    for mine, theirs in zip(new["results"], old["results"], strict=True):
        assert_same(mine, theirs, trained=not theirs["baseline"])
    assert new["data_fingerprint"] == old["data_fingerprint"]


def test_moco_without_labels_gives_the_stored_numbers():
    by = {"data": "digits", "variant": "moco-v2", "seed": 20}
    new, old = load_script("choose").row("digits", "moco-v2", 20, "digits", "cpu"), stored("choose", **by)
    assert load_script("choose").is_current(old)
    assert_same(new, old)
    for name in ("untrained_few_labels", "untrained_knn"):
        assert new[name] == pytest.approx(old[name], abs=UNTRAINED)

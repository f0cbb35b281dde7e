"""Comparison of representations: raw pixels, an untrained and the trained encoder under one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import NearfarError, RandomKey, UsageError
from nearfar.evaluate.few_labels import few_label_probe
from nearfar.evaluate.geometry import MAX_GEOMETRY_SAMPLES, effective_rank, spread
from nearfar.evaluate.input_checks import TestY, TrainY, check_features, standardize_columns
from nearfar.evaluate.knn import knn
from nearfar.evaluate.probe import linear_probe
from nearfar.evaluate.result_table import ResultTable
from nearfar.losses import alignment, uniformity

VALIDATION_PENALTIES = tuple(10.0**k for k in range(-3, 6))
"""Values of C from which a validation split chooses."""


@dataclass(frozen=True)
class Features:
    """Features of one representation in a comparison.

    All representations of a comparison describe the same samples.

    Attributes:
        train: Features of the training split (n, d).
        test: Features of the test split (m, d).
        views: Features of two views of some test samples, row by row, for the alignment.
        standardize: True if probes standardize the features.
        baseline: True if the representation was not trained. The table then reports where a baseline beats
            training.
        validation: Features of the validation split (v, d), if the data bring one. It chooses the penalty of
            the linear probe.
    """

    train: Tensor | np.ndarray
    test: Tensor | np.ndarray
    views: tuple[Tensor | np.ndarray, Tensor | np.ndarray] | None = None
    standardize: bool = True
    baseline: bool = False
    validation: Tensor | np.ndarray | None = None


def build_pixel_baselines(train: Tensor, test: Tensor, views: tuple[Tensor, Tensor] | None = None) -> dict[str, Features]:
    """Build the simplest baselines: flattened images, raw and standardized.

    The second one standardizes each pixel over the training split.
    """
    flat = [x.flatten(1).float() for x in (train, test, *(views or ()))]
    scaled = standardize_columns(*flat)
    return {
        name: Features(x[0], x[1], views=(x[2], x[3]) if views else None, standardize=False, baseline=True)
        for name, x in {"raw pixels": flat, "raw pixels, scaled": scaled}.items()
    }


def compare_features(
    representations: Mapping[str, Features], train_y: TrainY | None = None, test_y: TestY | None = None, *, rng_key: RandomKey,
    k: int = 20, temperature: float = 0.07, per_class: int = 5, draws: int = 10, C: float = 1.0,
    split: str = "test", checkpoint: str = "last epoch", validation_y: TestY | None = None,
) -> ResultTable:  # fmt: skip
    """Measure every representation with the same protocol.

    Without labels, only the geometry is measured. Without views, the alignment is left out.

    Args:
        representations: Features by name.
        train_y: Labels of the training split (n,).
        test_y: Labels of the test split (m,).
        rng_key: Random key for drawn subsets.
        k: Number of neighbors of kNN.
        temperature: Temperature of the kNN weights.
        per_class: Labeled samples per class of the few-label probe.
        draws: Number of draws of the few-label probe.
        C: Inverse penalty of the linear probes.
        split: Name of the evaluated split, for the protocol.
        checkpoint: Name of the checkpoint that gave the features, for the protocol. Nothing is chosen by the
            numbers of the table.
        validation_y: Labels of the validation split (v,). The penalty of the linear probe on all labels is then
            the one of `VALIDATION_PENALTIES` with the best validation accuracy, for every representation.
    """
    for name, value in {"k": k, "temperature": temperature, "per_class": per_class, "draws": draws, "C": C}.items():
        if not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be greater than 0, got {value}")
    if (train_y is None) != (test_y is None):
        raise NearfarError("compare: give labels for both the training and the test split, or for neither")
    _same_samples(representations)
    results = []
    for name, features in representations.items():
        train, test = check_features(features.train, f"{name}, training features"), check_features(features.test, f"{name}, test features")
        row: dict[str, Any] = {
            "representation": name,
            "baseline": features.baseline,
            "scale": features.standardize,
            "width": train.shape[1],
        }
        if train_y is not None and test_y is not None:
            few = few_label_probe(train, train_y, test, test_y, per_class, draws, C, features.standardize, rng_key=rng_key)
            best_C = C if validation_y is None else _choose_validated_penalty(features, train_y, validation_y)
            probe = linear_probe(train, train_y, test, test_y, best_C, features.standardize)
            row |= {"few_labels": few.mean, "few_labels_std": few.std, "linear": probe.accuracy, "linear_converged": probe.converged}
            row |= {} if validation_y is None else {"linear_C": best_C}
            row["knn"] = knn(train, train_y, test, test_y, k, temperature).accuracy
        results.append(row | measure_geometry(test, features.views, rng_key))
    protocol: dict[str, Any] = {"split": split, "checkpoint": checkpoint, "geometry_samples": MAX_GEOMETRY_SAMPLES, "seed": rng_key.seed}
    if train_y is not None:
        counts = torch.as_tensor(train_y).unique(return_counts=True)[1]
        protocol |= {"k": min(k, len(train_y)), "k_asked": k, "temperature": temperature, "per_class": per_class, "draws": draws}
        protocol |= {"short_classes": int((counts < per_class).sum()), "C": C}
        protocol |= {} if validation_y is None else {"penalty": "chosen on the validation split"}
    return ResultTable(results, protocol)


def _choose_validated_penalty(features: Features, train_y: TrainY, validation_y: TestY) -> float:
    """Return the penalty with the best validation accuracy. Ties go to the strongest penalty."""
    assert features.validation is not None
    train, held = check_features(features.train, "training features"), check_features(features.validation, "validation features")
    return max(VALIDATION_PENALTIES, key=lambda C: linear_probe(train, train_y, held, validation_y, C, features.standardize).accuracy)


def measure_geometry(test: Tensor, views: tuple[Tensor | np.ndarray, Tensor | np.ndarray] | None, rng_key: RandomKey) -> dict[str, float]:
    """Measure the geometry of features: uniformity, effective rank, spread, and alignment of views.

    Args:
        test: Features of the test split, (m, d).
        views: Features of two views of some samples, row by row.
        rng_key: Random key of the drawn samples.
    """
    index = np.sort(rng_key("geometry").permutation(len(test))[:MAX_GEOMETRY_SAMPLES])
    sample = test[torch.from_numpy(index).to(test.device)]
    measured = {"uniformity": float(uniformity(sample)), "effective_rank": effective_rank(sample), "spread": spread(sample)}
    if views is None:
        return measured
    a, b = (check_features(view, "features of the views") for view in views)
    return {"alignment": float(alignment(a, b))} | measured


def _same_samples(representations: Mapping[str, Features]) -> None:
    sizes = {name: (len(f.train), len(f.test)) for name, f in representations.items()}
    if len(set(sizes.values())) > 1:
        raise NearfarError(f"compare: representations of different samples cannot be compared (training, test rows: {sizes})")

"""Few-label evaluation: the linear probe on a few labeled samples per class, over several draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearfar.core import DataError, RandomKey
from nearfar.core.argument_checks import check_positive
from nearfar.evaluate.input_checks import TestX, TestY, TrainX, TrainY, check_features, check_labels, standardize_columns
from nearfar.evaluate.probe import fit_linear


@dataclass(frozen=True)
class FewLabelsResult:
    """Accuracy over several draws of labels, and the protocol.

    `mean` and `std` are over the draws.
    `short_classes` is the number of classes with fewer than `per_class` training samples. All samples of such
    a class are used.
    """

    mean: float
    std: float
    accuracies: tuple[float, ...]
    per_class: int
    draws: int
    C: float
    standardize: bool
    short_classes: int


def draw_labeled_rows(labels: np.ndarray, per_class: int, rng_key: RandomKey) -> np.ndarray:
    """Draw the indices of `per_class` samples of each class, in ascending order.

    The result depends only on labels and random key, so it is the same for all representations.
    """
    order = rng_key.permutation(len(labels))
    shuffled = labels[order]
    return np.sort(np.concatenate([order[shuffled == c][:per_class] for c in np.unique(labels)]))


def few_label_probe(
    train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, per_class: int = 5, draws: int = 10,
    C: float = 1.0, standardize: bool = True, *, rng_key: RandomKey,
) -> FewLabelsResult:  # fmt: skip
    """Fit linear probes on `per_class` labeled samples per class.

    Each of the `draws` fits draws its samples with the random key. The accuracy is measured on the whole test
    split.

    `standardize` uses the mean and deviation of all training features, because they are available without
    labels.
    """
    for name, count in (("per_class", per_class), ("draws", draws)):
        if count < 1:
            raise DataError(f"`{name}` must be at least 1, got {count}")
    check_positive(C=C)
    train, test = check_features(train_x, "training features"), check_features(test_x, "test features")
    y, truth = check_labels(train_y, train, "training labels"), check_labels(test_y, test, "test labels")
    if standardize:
        train, test = standardize_columns(train, test)
    labels = y.cpu().numpy()
    accuracies = []
    for i in range(draws):
        chosen = draw_labeled_rows(labels, per_class, rng_key("few labels", i))
        fitted = fit_linear(train[chosen], y[chosen], C)
        accuracies.append(float((fitted.predict(test) == truth).double().mean()))
    spread = float(np.std(accuracies, ddof=1)) if draws > 1 else 0.0
    short = int((np.unique(labels, return_counts=True)[1] < per_class).sum())
    return FewLabelsResult(float(np.mean(accuracies)), spread, tuple(accuracies), per_class, draws, C, standardize, short)

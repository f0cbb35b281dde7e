"""Robustness of representations: accuracy of a linear probe on corrupted test images.

The probe learns from clean training features. The test images are corrupted as in ImageNet-C
(`nearfar.evaluate.image_corruptions`), encoded and classified. Each corruption counts by its mean over the
severities, and the summary is the mean over the corruptions, as in Hendrycks & Dietterich (2019). Accuracies
are not divided by those of AlexNet, so they are comparable with the mean accuracy on CIFAR-10-C, but not with
the mCE of ImageNet-C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Integer, UInt8
from torch import Tensor

from nearfar.core import DataError, RandomKey, UsageError
from nearfar.core.argument_checks import check_positive
from nearfar.evaluate.image_corruptions import CORRUPTIONS, SEVERITIES, check_severity, corrupt_images, find_corruption
from nearfar.evaluate.input_checks import TestY, TrainX, TrainY, check_features, check_labels, measure_columns
from nearfar.evaluate.probe import fit_linear

EncodeImages = Callable[[Tensor], Tensor]
"""Function that maps uint8 images (n, c, h, w) to features (n, d)."""
Predict = Callable[[Tensor], Tensor]
"""Function that maps uint8 images (n, c, h, w) to labels (n,)."""


@runtime_checkable
class ReadableImages(Protocol):
    """Dataset that reads images by position, such as `nearfar.data.images.dataset.Images`."""

    def __len__(self) -> int: ...
    def read(self, ids: np.ndarray) -> Tensor: ...


TestImages = UInt8[Tensor, "m c h w"] | UInt8[np.ndarray, "m c h w"] | ReadableImages
"""Test images: a tensor, an array (of a file, for example) or a dataset."""


@dataclass(frozen=True)
class CorruptionAccuracy:
    """Accuracy on clean and on corrupted test images.

    Attributes:
        clean: Accuracy on clean images.
        by_severity: Accuracy on each corruption, one number for each of `severities`.
        severities: Evaluated severities.
    """

    clean: float
    by_severity: dict[str, tuple[float, ...]]
    severities: tuple[int, ...]

    @property
    def by_corruption(self) -> dict[str, float]:
        """Mean accuracy over the severities, for each corruption."""
        return {name: float(np.mean(accuracies)) for name, accuracies in self.by_severity.items()}

    @property
    def mean(self) -> float:
        """Mean accuracy over the corruptions."""
        return float(np.mean(list(self.by_corruption.values())))

    @property
    def relative_drop(self) -> float:
        """Share of the clean accuracy that is lost on corrupted images.

        It is 0 if the clean accuracy is 0.
        """
        if self.clean == 0:
            return 0.0
        return 1 - self.mean / self.clean


@dataclass(frozen=True)
class RobustnessResult(CorruptionAccuracy):
    """Accuracy of a linear probe on clean and on corrupted test images, and the protocol.

    Attributes:
        C: Inverse penalty of the probe, as in scikit-learn.
        standardize: True if features were standardized by the training split.
        converged: True if the fit of the probe converged.
    """

    C: float
    standardize: bool
    converged: bool


def probe_robustness(
    encode: EncodeImages, train_x: TrainX, train_y: TrainY, images: TestImages, labels: TestY, *, rng_key: RandomKey,
    severities: Sequence[int] = SEVERITIES, corruptions: Sequence[str] = tuple(CORRUPTIONS),
    C: float = 1.0, standardize: bool = True, batch_size: int = 256,
) -> RobustnessResult:  # fmt: skip
    """Fit a linear probe on clean features and measure its accuracy on corrupted images.

    The clean accuracy is that of `linear_probe`. Any representation can be measured: `encode` may return raw
    pixels, or the features of an untrained or a trained encoder.

    Args:
        encode: Function from uint8 images (n, c, h, w) to features (n, d). It must be the function that gave
            `train_x`.
        train_x: Features of clean training images (n, d).
        train_y: Labels of the training images (n,).
        images: Clean test images, uint8 (m, c, h, w).
        labels: Labels of the test images (m,).
        rng_key: Random key of the corruptions. The id of an image is its position.
        severities: Severities to average over. Fewer are faster.
        corruptions: Names of corruptions.
        C: Inverse penalty of the probe.
        standardize: If True, scale features with the mean and deviation of the training split.
        batch_size: Number of images in memory at a time.
    """
    _check_protocol(severities, corruptions, batch_size)
    check_positive(C=C)
    train = check_features(train_x, "training features")
    y = check_labels(train_y, train, "training labels")
    mean, std = torch.zeros_like(train[0]), torch.ones_like(train[0])
    if standardize:
        mean, std = measure_columns(train)
    fitted = fit_linear((train - mean) / std, y, C)

    def predict(batch: Tensor) -> Tensor:
        """Encode and classify images."""
        features = check_features(encode(batch), "test features").to(train.device)
        if features.shape != (len(batch), train.shape[1]):
            wanted = (len(batch), train.shape[1])
            raise DataError(f"`encode` must return features of the shape {wanted}, got {tuple(features.shape)}")
        return fitted.predict((features - mean) / std)

    found = measure_corruption_accuracy(
        predict, images, labels, rng_key=rng_key, severities=severities, corruptions=corruptions, batch_size=batch_size
    )
    return RobustnessResult(found.clean, found.by_severity, found.severities, C, standardize, fitted.converged)


@torch.no_grad()
def measure_corruption_accuracy(
    predict: Predict, images: TestImages, labels: TestY, *, rng_key: RandomKey,
    severities: Sequence[int] = SEVERITIES, corruptions: Sequence[str] = tuple(CORRUPTIONS), batch_size: int = 256,
) -> CorruptionAccuracy:  # fmt: skip
    """Measure the accuracy of a classifier on clean and on corrupted images.

    Each batch is read once and corrupted in all ways, so memory does not grow with the number of images. The
    result does not depend on the batch size.

    Args:
        predict: Function from uint8 images (n, c, h, w) to labels (n,).
        images: Clean test images, uint8 (m, c, h, w).
        labels: Labels of the test images (m,).
        rng_key: Random key of the corruptions. The id of an image is its position.
        severities: Severities to evaluate.
        corruptions: Names of corruptions.
        batch_size: Number of images in memory at a time.
    """
    _check_protocol(severities, corruptions, batch_size)
    truth = check_labels(labels, torch.empty(len(images)), "test labels")
    if not len(truth):
        raise DataError("robustness needs at least one test image")
    clean, hits = 0, np.zeros((len(corruptions), len(severities)), np.int64)
    for ids in torch.arange(len(truth)).split(batch_size):
        batch, answers = _read_batch(images, ids), truth[ids]
        clean += _count_hits(predict(batch), answers)
        for i, name in enumerate(corruptions):
            for j, severity in enumerate(severities):
                corrupted = corrupt_images(batch, name, severity, ids, rng_key)
                hits[i, j] += _count_hits(predict(corrupted), answers)
    by_severity = {name: tuple((row / len(truth)).tolist()) for name, row in zip(corruptions, hits, strict=True)}
    return CorruptionAccuracy(clean / len(truth), by_severity, tuple(severities))


def _check_protocol(severities: Sequence[int], corruptions: Sequence[str], batch_size: int) -> None:
    for severity in severities:
        check_severity(severity)
    for name in corruptions:
        find_corruption(name)
    for name, values in (("severities", severities), ("corruptions", corruptions)):
        if not values or len(set(values)) < len(values):
            raise UsageError(f"{name} must be at least one, each named once, got {tuple(values)}")
    if batch_size < 1:
        raise UsageError(f"`batch_size` must be at least 1, got {batch_size}")


def _read_batch(images: TestImages, ids: Int[Tensor, " b"]) -> UInt8[Tensor, "b c h w"]:
    if isinstance(images, Tensor):
        return images[int(ids[0]) : int(ids[-1]) + 1]
    if isinstance(images, np.ndarray):
        return torch.from_numpy(np.array(images[int(ids[0]) : int(ids[-1]) + 1]))
    return images.read(ids.numpy())


def _count_hits(predicted: Integer[Tensor, " b"], truth: Integer[Tensor, " b"]) -> int:
    return int((predicted.to(truth.device) == truth).sum())

"""Robustness: a probe of clean images on the fifteen corruptions of ImageNet-C."""

from __future__ import annotations

import torch

from nearfar.api.suite_subject import Subject, SuiteRow, wilson_interval
from nearfar.core import RandomKey
from nearfar.data import Images
from nearfar.evaluate.robustness import probe_robustness

MAX_CORRUPTED_IMAGES = 1000
"""Largest number of test images. Each is corrupted in fifteen ways."""
MEASURED_SEVERITIES = (1, 3, 5)


def explain_skip(subject: Subject) -> str:
    """Return the reason why the suite does not apply."""
    if subject.model is None or not isinstance(subject.splits.test, Images):
        return "it corrupts images: the data have none"
    return subject.explain_missing_labels()


def measure(subject: Subject) -> list[SuiteRow]:
    """Fit a probe on clean training images and measure it on corrupted test images."""
    images = subject.splits.test
    order = RandomKey(subject.seed)("evaluate", "corruptions").permutation(len(images))[:MAX_CORRUPTED_IMAGES]
    images = images.subset(sorted(order.tolist()))
    train_labels, rows = torch.as_tensor(subject.splits.train.labels), []
    for system, encode in subject.get_image_encoders().items():
        features = subject.features[system]
        found = probe_robustness(
            encode, features.train, train_labels, images, images.labels,
            rng_key=RandomKey(subject.seed)("evaluate", "corrupted"), severities=MEASURED_SEVERITIES,
            standardize=features.standardize,
        )  # fmt: skip
        values = {"clean": found.clean, "mean of corruptions": found.mean, **found.by_corruption}
        rows += [SuiteRow("corruptions", system, name, value, *wilson_interval(value, len(images))) for name, value in values.items()]
    levels = ", ".join(map(str, MEASURED_SEVERITIES))
    subject.protocol["corruptions"] = f"accuracy on {len(images):,} test images, mean over the severities {levels}"
    return rows

"""Accuracy on corrupted images against a naive loop, with raw pixels and other representations."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from nearfar.core import DataError, RandomKey, UsageError
from nearfar.evaluate import linear_probe
from nearfar.evaluate.image_corruptions import CORRUPTIONS, corrupt_images
from nearfar.evaluate.input_checks import standardize_columns
from nearfar.evaluate.probe import fit_linear
from nearfar.evaluate.robustness import CorruptionAccuracy, measure_corruption_accuracy, probe_robustness

KEY = RandomKey(11)("test")


@functools.cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images, training labels, test images (60 of them) and test labels."""
    data = load_digits()
    images = torch.from_numpy((data.images * (255 / 16)).round().astype(np.uint8))[:, None]
    labels = torch.from_numpy(data.target)
    return images[:600], labels[:600], images[600:660], labels[600:660]


class ImageDataset:
    """Smallest dataset that reads images by position."""

    def __init__(self, images: Tensor):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def read(self, ids: np.ndarray) -> Tensor:
        return self.images[torch.as_tensor(ids)]


def raw_pixels(images: Tensor) -> Tensor:
    return images.flatten(1).float()


def naive_accuracies(C: float, standardize: bool, test: Tensor, test_y: Tensor) -> dict[tuple[str, int], float]:
    """Corrupt, encode and classify one image at a time."""
    train, train_y, _, _ = digits()
    x = raw_pixels(train)
    fitted = fit_linear(standardize_columns(x)[0] if standardize else x, train_y, C)
    found = {}
    for name, severity in itertools.product(CORRUPTIONS, (2, 5)):
        hits = 0
        for i, (image, label) in enumerate(zip(test, test_y, strict=True)):
            features = raw_pixels(corrupt_images(image[None], name, severity, torch.tensor([i]), KEY))
            if standardize:
                features = standardize_columns(x, features)[1]
            hits += int(fitted.predict(features)[0] == label)
        found[name, severity] = hits / len(test)
    return found


@pytest.mark.parametrize(("C", "standardize"), [(1.0, True), (0.1, False)])
def test_accuracies_are_those_of_a_loop_over_images(C, standardize):
    train, train_y, test, test_y = digits()
    test, test_y = test[:15], test_y[:15]
    expected = naive_accuracies(C, standardize, test, test_y)
    found = probe_robustness(
        raw_pixels, raw_pixels(train), train_y, test, test_y, rng_key=KEY, severities=(2, 5), C=C, standardize=standardize, batch_size=6
    )
    for name in CORRUPTIONS:
        assert found.by_severity[name] == (expected[name, 2], expected[name, 5])
        assert found.by_corruption[name] == pytest.approx((expected[name, 2] + expected[name, 5]) / 2)
    clean = linear_probe(raw_pixels(train), train_y, raw_pixels(test), test_y, C, standardize)
    assert found.clean == pytest.approx(clean.accuracy)
    assert found.mean == pytest.approx(sum(expected.values()) / 30)
    assert found.relative_drop == pytest.approx((found.clean - found.mean) / found.clean)
    assert (found.severities, found.C, found.standardize, found.converged) == ((2, 5), C, standardize, clean.converged)


def test_corruptions_lower_the_accuracy_of_raw_pixels():
    train, train_y, test, test_y = digits()
    found = probe_robustness(raw_pixels, raw_pixels(train), train_y, test, test_y, rng_key=KEY)
    assert list(found.by_severity) == list(CORRUPTIONS)
    assert found.severities == (1, 2, 3, 4, 5)
    assert found.clean > 0.85
    assert 0.3 < found.mean < found.clean - 0.05
    assert 0.05 < found.relative_drop < 0.7
    assert np.mean([row[0] for row in found.by_severity.values()]) > np.mean([row[4] for row in found.by_severity.values()])


def test_an_encoder_that_ignores_noise_keeps_its_accuracy():
    train, train_y, test, test_y = digits()

    def threshold(images: Tensor) -> Tensor:
        return (images > 127).flatten(1).float()

    options = {"rng_key": KEY, "severities": (5,), "corruptions": ("gaussian_noise", "brightness")}
    binary = probe_robustness(threshold, threshold(train), train_y, test, test_y, **options)
    assert binary.by_corruption["gaussian_noise"] > binary.clean - 0.1
    blind = probe_robustness(lambda images: torch.ones(len(images), 3), torch.ones(len(train), 3), train_y, test, test_y, **options)
    assert blind.clean == blind.mean
    assert blind.relative_drop == 0


@pytest.mark.parametrize("batch_size", [1, 13, 60, 1000])
def test_the_batch_size_changes_nothing(batch_size):
    _, _, test, test_y = digits()
    sizes = []

    def predict(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return images.flatten(1).long().sum(1) % 10

    options = {"rng_key": KEY, "severities": (3,), "corruptions": ("fog", "elastic_transform", "shot_noise")}
    found = measure_corruption_accuracy(predict, test, test_y, batch_size=batch_size, **options)
    assert max(sizes) == min(batch_size, 60)
    assert found == measure_corruption_accuracy(predict, test, test_y, batch_size=7, **options)


def test_tensors_arrays_files_and_datasets_give_the_same(tmp_path):
    _, _, test, test_y = digits()
    np.save(tmp_path / "images.npy", test.numpy())

    predict = lambda images: images.flatten(1).long().sum(1) % 10
    sources = [test, test.numpy(), np.load(tmp_path / "images.npy", mmap_mode="r"), ImageDataset(test)]
    options = {"rng_key": KEY, "severities": (1,), "batch_size": 32}
    found = [measure_corruption_accuracy(predict, source, test_y.numpy(), **options) for source in sources]
    assert all(result == found[0] for result in found)


def test_nothing_to_lose_is_no_drop():
    assert CorruptionAccuracy(0.0, {"fog": (0.0, 0.5)}, (1, 2)).relative_drop == 0
    half = CorruptionAccuracy(0.8, {"fog": (0.2, 0.4), "snow": (0.6, 0.4)}, (1, 2))
    assert half.by_corruption == pytest.approx({"fog": 0.3, "snow": 0.5})
    assert half.mean == pytest.approx(0.4)
    assert half.relative_drop == pytest.approx(0.5)


def test_wrong_protocols_are_rejected():
    train, train_y, test, test_y = digits()
    x = raw_pixels(train)
    for options, message in (
        ({"severities": (0,)}, "severity must be 1, 2, 3, 4 or 5, got 0"),
        ({"severities": ()}, "severities must be at least one"),
        ({"severities": (1, 1)}, "each named once"),
        ({"corruptions": ("rain",)}, "unknown corruption 'rain'"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"C": 0.0}, "C"),
    ):
        with pytest.raises(UsageError, match=message):
            probe_robustness(raw_pixels, x, train_y, test, test_y, rng_key=KEY, **options)
    with pytest.raises(DataError, match=r"features of the shape \(60, 64\), got \(60, 65\)"):
        probe_robustness(lambda images: torch.ones(len(images), 65), x, train_y, test, test_y, rng_key=KEY)
    with pytest.raises(DataError, match="at least one test image"):
        measure_corruption_accuracy(raw_pixels, test[:0], test_y[:0], rng_key=KEY)
    with pytest.raises(DataError, match="60 samples need 60 labels"):
        measure_corruption_accuracy(raw_pixels, ImageDataset(test), test_y[:5], rng_key=KEY)

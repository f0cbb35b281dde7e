"""The fifteen image corruptions of ImageNet-C, at severities 1 to 5.

Noise, blur, weather and digital corruptions of Hendrycks & Dietterich, Benchmarking Neural Network Robustness
to Common Corruptions and Perturbations, ICLR 2019 (arXiv:1903.12261).

The parameters are those of the authors' scripts. Images whose shorter side has at most 64 pixels get the
parameters of CIFAR-10-C, larger images those of ImageNet-C. Lengths in pixels stay as published, for images of
32 and 224 pixels. Only zoom, pixelate and elastic transforms are relative to the image size.

The images are not those of the published datasets, because the random numbers differ. Other differences:

- Frost textures are ours: they are generated, whereas the authors cut them from photographs.
- Values are rounded to uint8, whereas the authors' scripts cut off the fraction.
- ImageNet-C is stored as JPEG files of quality 85. Here, only `jpeg_compression` compresses.

With the published parameters, a higher severity of glass blur, frost or elastic transforms may change pixels
less. This holds for the authors' images too.

Every random number is a function of random key, corruption, severity and sample id. A result therefore does
not depend on the batch, the order or the device.
"""

from __future__ import annotations

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.evaluate.corruption_blur import BLUR
from nearfar.evaluate.corruption_digital import DIGITAL
from nearfar.evaluate.corruption_levels import Corruption, as_unit_images, round_to_bytes
from nearfar.evaluate.corruption_noise import NOISE
from nearfar.evaluate.corruption_weather import WEATHER

CORRUPTIONS = NOISE | BLUR | WEATHER | DIGITAL
"""Corruptions by name, in the order of the paper."""
SEVERITIES = (1, 2, 3, 4, 5)
"""Severities of every corruption."""
SMALLEST_SIDE = 8
"""Shortest side of an image in pixels."""


@torch.no_grad()
def corrupt_images(
    images: UInt8[Tensor, "n c h w"], name: str, severity: int, sample_ids: Int[Tensor, " _"], rng_key: RandomKey
) -> UInt8[Tensor, "n c h w"]:
    """Corrupt gray or color images.

    Args:
        images: Images (n, c, h, w) with 1 or 3 channels, at least 8 pixels high and wide.
        name: Name of the corruption, one of `CORRUPTIONS`.
        severity: Severity, 1 to 5.
        sample_ids: Ids of the samples (n,). The random numbers of an image depend on its id.
        rng_key: Random key.

    Returns:
        Corrupted images (n, c, h, w).

    Raises:
        UsageError: unknown name or severity, or images of another shape.
    """
    corruption = find_corruption(name)
    check_severity(severity)
    _check_images(images, sample_ids)
    if not len(images):
        return images.clone()
    parameters = corruption.get_level(severity, (images.shape[2], images.shape[3]))
    slots = sample_ids.to(images.device)
    corrupted = corruption.apply(as_unit_images(images), slots, rng_key("corruption", name, severity), *parameters)
    return round_to_bytes(corrupted)


def find_corruption(name: str) -> Corruption:
    """Return the corruption of this name."""
    if name not in CORRUPTIONS:
        raise UsageError(f"unknown corruption {name!r}. Choose one of {', '.join(CORRUPTIONS)}")
    return CORRUPTIONS[name]


def check_severity(severity: int) -> None:
    """Raise `UsageError` unless the severity is one of 1 to 5."""
    if severity not in SEVERITIES:
        raise UsageError(f"severity must be 1, 2, 3, 4 or 5, got {severity}")


def _check_images(images: Tensor, sample_ids: Tensor) -> None:
    if images.shape[1] not in (1, 3) or min(images.shape[2:]) < SMALLEST_SIDE:
        wanted = f"1 or 3 channels and at least {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels"
        raise UsageError(f"corruptions need images (n, c, h, w) with {wanted}, got the shape {tuple(images.shape)}")
    if len(sample_ids) != len(images):
        raise UsageError(f"{len(images)} images need {len(images)} sample ids, got {len(sample_ids)}")

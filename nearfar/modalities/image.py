"""Image modality.

Raw pixels are the baseline.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nearfar.data import Images
from nearfar.evaluate import Features, build_pixel_baselines
from nearfar.modalities.modality import Modality
from nearfar.train.model_data import ViewPair

MAX_RAW_PIXELS_PER_SIDE = 32
"""Largest side of raw-pixel baselines. Larger images are averaged down, because a probe on more pixels
takes longer than the training."""


class ImageModality(Modality):
    """Images."""

    def compute_baselines(self, train: Images, test: Images, views: ViewPair | None) -> dict[str, Features]:
        return build_pixel_baselines(
            read_raw_pixels(train), read_raw_pixels(test), None if views is None else (_downscale(views[0]), _downscale(views[1]))
        )

    def summarize_data(self, train: Images) -> str:
        return f"{len(train):,} training images of {train.shape[2]} x {train.shape[1]} pixels"

    def build_sample_renderer(self, data: Images) -> Callable[[Tensor], Tensor]:
        return lambda ids: _read_unit_pixels(data, ids.reshape(-1).numpy()).unflatten(0, ids.shape)


def read_raw_pixels(data: Images) -> Tensor:
    """Return all images as floats, averaged down if they are large.

    Images are read in parts, so memory never holds all of them at full size.
    """
    return torch.cat([_downscale(_read_unit_pixels(data, np.arange(i, min(i + 512, len(data))))) for i in range(0, len(data), 512)])


def _downscale(images: Tensor) -> Tensor:
    large = images.shape[-1] > MAX_RAW_PIXELS_PER_SIDE
    return torch.nn.functional.adaptive_avg_pool2d(images, MAX_RAW_PIXELS_PER_SIDE) if large else images


def _read_unit_pixels(data: Images, ids: np.ndarray) -> Tensor:
    return data.read(ids).float() / 255

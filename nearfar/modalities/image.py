"""Images: their pixels are the baseline, and what a report shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nearfar.data import Images
from nearfar.evaluate import Features, raw_pixels
from nearfar.modalities.interface import Kind, Pair

LARGEST_RAW = 32
"""Raw pixels as a baseline are averaged down to this many a side: a probe on more takes longer than the training."""


class ImageKind(Kind):
    def baselines(self, train: Images, test: Images, views: Pair | None) -> dict[str, Features]:
        return raw_pixels(raw_images(train), raw_images(test), None if views is None else (_small(views[0]), _small(views[1])))

    def summary(self, train: Images) -> str:
        return f"{len(train):,} training images of {train.shape[2]} x {train.shape[1]} pixels"

    def shown(self, data: Images) -> Callable[[Tensor], Tensor]:
        return lambda ids: _unit(data, ids.reshape(-1).numpy()).unflatten(0, ids.shape)


def raw_images(data: Images) -> Tensor:
    """All images as floats, averaged down where they are large; in parts, so that the full size never stands in memory."""
    return torch.cat([_small(_unit(data, np.arange(i, min(i + 512, len(data))))) for i in range(0, len(data), 512)])


def _small(images: Tensor) -> Tensor:
    large = images.shape[-1] > LARGEST_RAW
    return torch.nn.functional.adaptive_avg_pool2d(images, LARGEST_RAW) if large else images


def _unit(data: Images, ids: np.ndarray) -> Tensor:
    return data.read(ids).float() / 255

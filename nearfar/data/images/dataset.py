"""Images of one size, in memory or in files, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int32, Int64, UInt8
from torch import Tensor

from nearfar.core.random_key import RandomKey
from nearfar.data.common.dataset import Ids, Samples, as_index_array
from nearfar.data.common.image_stores import ImageStore

MAX_IMAGES_FOR_STATISTICS = 10_000
"""Means and deviations are taken over at most this many images, one from each of as many equal stretches of the data."""


@dataclass(frozen=True, eq=False)
class Images(Samples):
    """Some images of a store. Values are uint8, 0 to 255; they become floats on the device, in the views."""

    store: ImageStore

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)"""
        return self.store.shape

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        return self.store.read(self.ids[as_index_array(ids)])

    def get_original_sizes(self, ids: Ids) -> Int32[np.ndarray, "n 2"] | None:
        """Height and width of the image files, where `read_crops` can cut windows out of them."""
        return self.store.get_original_sizes(self.ids[as_index_array(ids)])

    def read_crops(self, ids: Ids, boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]) -> list[UInt8[Tensor, "n c _s _s"]]:
        """For each view its windows (left, top, right, bottom: shares of the file's image), scaled to its size."""
        return self.store.read_crops(self.ids[as_index_array(ids)], boxes, sizes)

    def sizes(self) -> dict[str, Any]:
        """What a recipe and an encoder are built from; mean and std are per channel, of values in [0, 1]."""
        channels, height, _ = self.shape
        mean, std = self._statistics()
        return {"n": len(self), "channels": channels, "size": height, "mean": mean, "std": std, "classes": len(self.classes)}

    def _statistics(self) -> tuple[list[float], list[float]]:
        """From histograms of the 256 values: counts are whole numbers, so the result does not depend on the order of adding."""
        sample = self._sample(min(len(self), MAX_IMAGES_FOR_STATISTICS))
        counts = np.zeros((self.shape[0], 256), dtype=np.int64)
        for start in range(0, len(sample), 512):
            pixels = self.read(sample[start : start + 512]).numpy()
            for channel, histogram in enumerate(counts):
                histogram += np.bincount(pixels[:, channel].ravel(), minlength=256)
        share, values = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), np.arange(256) / 255
        mean = share @ values
        variance = (share * (values - mean[:, None]) ** 2).sum(axis=1)
        return mean.tolist(), np.sqrt(variance).tolist()

    def _sample(self, count: int) -> Int64[np.ndarray, " count"]:
        """A keyed row from each of `count` equal stretches. A fixed step would fall in with periods of the data:
        MNIST alternates between two groups of writers, and every sixth image is 6% too dark."""
        edges = np.arange(count + 1) * len(self) // max(count, 1)
        return edges[:-1] + (RandomKey(0)("statistics").uniform(np.arange(count), 1)[:, 0] * np.diff(edges)).astype(np.int64)

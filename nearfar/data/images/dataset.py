"""Images of one size, in memory or in files, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int32, Int64, UInt8
from torch import Tensor

from nearfar.core.random_key import Key
from nearfar.data.common.dataset import Ids, Samples, positions
from nearfar.data.common.stores import Store

STATISTICS_FROM = 10_000
"""Means and deviations are taken over at most this many images, one from each of as many equal stretches of the data."""


@dataclass(frozen=True, eq=False)
class Images(Samples):
    """Some images of a store. Values are uint8, 0 to 255; they become floats on the device, in the views."""

    store: Store

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)"""
        return self.store.shape

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        return self.store.read(self.ids[positions(ids)])

    def frames(self, ids: Ids) -> Int32[np.ndarray, "n 2"] | None:
        """Height and width of the image files, where `cut` can cut windows out of them."""
        return self.store.frames(self.ids[positions(ids)])

    def cut(self, ids: Ids, windows: Float[np.ndarray, "n v 4"], sizes: Sequence[int]) -> list[UInt8[Tensor, "n c _s _s"]]:
        """For each view its windows (left, top, right, bottom: shares of the file's image), scaled to its size."""
        return self.store.cut(self.ids[positions(ids)], windows, sizes)

    def sizes(self) -> dict[str, Any]:
        """What a recipe and an encoder are built from; mean and std are per channel, of values in [0, 1]."""
        channels, height, _ = self.shape
        mean, std = self._statistics()
        return {"n": len(self), "channels": channels, "size": height, "mean": mean, "std": std, "classes": len(self.classes)}

    def _statistics(self) -> tuple[list[float], list[float]]:
        """From histograms of the 256 values: counts are whole numbers, so the result does not depend on the order of adding."""
        sample = self._sample(min(len(self), STATISTICS_FROM))
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
        return edges[:-1] + (Key(0)("statistics").uniform(np.arange(count), 1)[:, 0] * np.diff(edges)).astype(np.int64)

"""Dataset of images of one size, in memory or in files."""

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
"""Largest number of images from which means and standard deviations are computed.

The data are divided into as many equal stretches, and one image is drawn from each stretch.
"""


@dataclass(frozen=True, eq=False)
class Images(Samples):
    """Dataset of images of a store.

    Values are uint8, 0 to 255. They become floats on the device, in the views.
    """

    store: ImageStore

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of each image: (channels, height, width)."""
        return self.store.shape

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        """Return some images as a uint8 tensor of shape (n, c, h, w)."""
        return self.store.read(self.ids[as_index_array(ids)])

    def get_original_sizes(self, ids: Ids) -> Int32[np.ndarray, "n 2"] | None:
        """Return the height and width of the image files, shape (n, 2).

        The result is None if `read_crops` cannot cut windows from files.
        """
        return self.store.get_original_sizes(self.ids[as_index_array(ids)])

    def read_crops(self, ids: Ids, boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]) -> list[UInt8[Tensor, "n c _s _s"]]:
        """Return the crops of each view, resized to the size of the view.

        Args:
            ids: Positions of n images.
            boxes: Windows of the v views of each image, shape (n, v, 4): left, top, right and bottom as
                shares of the file's image.
            sizes: Pixels a side of each view.

        Returns:
            One tensor of shape (n, c, size, size) for each view.
        """
        return self.store.read_crops(self.ids[as_index_array(ids)], boxes, sizes)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes from which recipes and encoders are built.

        Mean and std are per channel, for values in [0, 1].
        """
        channels, height, _ = self.shape
        mean, std = self._statistics()
        return {"n": len(self), "channels": channels, "size": height, "mean": mean, "std": std, "classes": len(self.classes)}

    def _statistics(self) -> tuple[list[float], list[float]]:
        """Compute the mean and the standard deviation of each channel.

        Both come from histograms of the 256 values. Counts are whole numbers, so the result does not depend
        on the order of addition.
        """
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
        """Draw one random row from each of `count` equal stretches.

        A fixed step could coincide with periods of the data. MNIST alternates between two groups of
        writers, and a sample of every sixth image is 6 % too dark.
        """
        edges = np.arange(count + 1) * len(self) // max(count, 1)
        return edges[:-1] + (RandomKey(0)("statistics").uniform(np.arange(count), 1)[:, 0] * np.diff(edges)).astype(np.int64)

"""Adapter of images to the size and channels of a trained model.

Images of any kind that can be read are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.common.splits import Splits
from nearfar.data.images.dataset import Images, ImageStore
from nearfar.data.images.decode import resize_images
from nearfar.data.images.load import load_image_source


def load_all_images(
    spec: Any, *, image_size: int | None = None, on_error: str = "stop", progress: ProgressCallback | None = None
) -> Splits:
    """Load all images, in the order of the source.

    The result has a test split only if the data bring one.

    Args:
        spec: Source of the images, as in `load_images`.
        image_size: Pixels a side to which images are cropped and scaled.
        on_error: "stop" at a broken image, or "skip" it.
        progress: Called as progress(done, total) while files are read.
    """
    return load_image_source(spec, ImageReadOptions(image_size, on_error, progress))


def as_images(images: Any, *, channels: int, size: int) -> list[Images]:
    """Convert images to the given size and number of channels.

    Args:
        images: Source of images, as in `load_images`, or an opened dataset.
        channels: 1 for gray, 3 for RGB.
        size: Pixels a side.

    Returns:
        One dataset, or two if the data bring their own split.
    """
    if isinstance(images, Images):
        return [adapt_images(images, channels, size)]
    found = load_all_images(images, image_size=size)
    return [adapt_images(part, channels, size) for part in (found.train, found.test) if part is not None]


def adapt_images(data: Images, channels: int, size: int) -> Images:
    """Return the dataset with this number of channels and pixels a side."""
    return data if data.shape == (channels, size, size) else replace(data, store=_Adapted(data.store, (channels, size, size)))


@dataclass(frozen=True, eq=False)
class _Adapted(ImageStore):
    """Images of another store, resized and converted between gray and color.

    Gray becomes color by copying the channel. Color becomes gray by luma.
    """

    store: ImageStore
    shape: tuple[int, int, int]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.store)

    def name(self, row: int) -> str:
        """Return the name of a row in the original store."""
        return self.store.name(row)

    @property
    def fingerprint(self) -> str:
        """Return the original fingerprint, followed by the new shape."""
        return f"{self.store.fingerprint}-{self.shape}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        """Return the images of these rows in the new shape."""
        pixels = self.store.read(rows)
        if pixels.shape[2:] != self.shape[1:]:
            pixels = resize_images(pixels, self.shape[1])
        if pixels.shape[1] == self.shape[0]:
            return pixels
        if self.shape[0] == 3:
            return pixels.expand(-1, 3, -1, -1)
        if self.shape[0] == 1:
            red, green, blue = pixels.float().unbind(1)
            return (0.299 * red + 0.587 * green + 0.114 * blue).round().to(pixels.dtype)[:, None]
        raise UsageError(f"cannot convert {pixels.shape[1]} channels to {self.shape[0]}")

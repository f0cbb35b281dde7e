"""Images handed to a trained model: of any kind that can be read, brought to the size and channels it was trained on."""

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
    """Everything there is, in the order of the source, with a test split only where the data bring one."""
    return load_image_source(spec, ImageReadOptions(image_size, on_error, progress))


def as_images(images: Any, *, channels: int, size: int) -> list[Images]:
    """What `open_data` takes, or data already opened, at the given size and number of channels: one part, or two where the data
    bring a split."""
    if isinstance(images, Images):
        return [adapt_images(images, channels, size)]
    found = load_all_images(images, image_size=size)
    return [adapt_images(part, channels, size) for part in (found.train, found.test) if part is not None]


def adapt_images(data: Images, channels: int, size: int) -> Images:
    return data if data.shape == (channels, size, size) else replace(data, store=_Adapted(data.store, (channels, size, size)))


@dataclass(frozen=True, eq=False)
class _Adapted(ImageStore):
    """Another store's images at another size, grey as colour (copied) or colour as grey (luma)."""

    store: ImageStore
    shape: tuple[int, int, int]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.store)

    def name(self, row: int) -> str:
        return self.store.name(row)

    @property
    def fingerprint(self) -> str:
        return f"{self.store.fingerprint}-{self.shape}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
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
        raise UsageError(f"cannot turn {pixels.shape[1]} channels into {self.shape[0]}")

"""Stores of image pixels.

Rows are counted in the order of the source and never renumbered.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64, Shaped, UInt8
from torch import Tensor

from nearfar.core.progress import ProgressCallback
from nearfar.data.images.crop_decoding import decode_crops
from nearfar.data.images.decode import BrokenImage, decode_image, map_in_threads

FINGERPRINT_CHUNK_BYTES = 1024
"""Bytes in each of the three chunks that a file's fingerprint is computed from."""

_Result = TypeVar("_Result")


class ImageStore(ABC):
    """Images of one shape, accessed by row."""

    shape: tuple[int, int, int]
    """Shape of each image: (channels, height, width)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, row: int) -> str:
        """Return a readable name of this image."""

    @abstractmethod
    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        """Return the images of these rows."""
        ...

    def get_original_sizes(self, rows: Int64[np.ndarray, " n"]) -> Int32[np.ndarray, "n 2"] | None:
        """Return the height and width of the files of these rows, shape (n, 2).

        `read_crops` cuts windows from these files. The result is None if the store only has images of
        `shape`.
        """
        return None

    def read_crops(
        self, rows: Int64[np.ndarray, " n"], boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]
    ) -> list[UInt8[Tensor, "n c _s _s"]]:
        """Return the crops of each view, resized to the size of the view.

        Args:
            rows: Rows of the store, shape (n,).
            boxes: Windows of the v views of each row, shape (n, v, 4): left, top, right and bottom as shares.
            sizes: Pixels a side of each view.

        Returns:
            One tensor of shape (n, c, size, size) for each view.
        """
        raise NotImplementedError(f"{type(self).__name__} has no files to cut windows from")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash that changes when the images change."""


@dataclass(frozen=True, eq=False)
class InMemoryImageStore(ImageStore):
    """Store with all pixels in one tensor.

    Worker processes share the tensor instead of copying it.
    """

    pixels: UInt8[Tensor, "n c h w"]
    names: tuple[str, ...] | None = None
    """Paths of the files that the pixels were decoded from. Without paths, rows are called "row 17"."""
    source_fingerprint: str | None = None
    """Fingerprint of the files that the pixels were decoded from, if any."""

    shape: tuple[int, int, int] = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(self.pixels.shape[1:]))

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, row: int) -> str:
        """Return the path of a row, or its number if there are no paths."""
        return self.names[row] if self.names else f"row {row}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        """Return the images of these rows."""
        return self.pixels[torch.from_numpy(rows).to(self.pixels.device, non_blocking=True)]

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the source, if any, followed by a hash of the pixels."""
        return f"{self.source_fingerprint or ''}{self._digest}"

    @cached_property
    def _digest(self) -> str:
        return hash_bytes(str(tuple(self.pixels.shape)).encode(), self.pixels.numpy().reshape(-1).data)


@dataclass(frozen=True, eq=False)
class ImageFileStore(ImageStore):
    """Store of image files that are decoded when they are read.

    All data about the files are kept in arrays. Python strings would be copied: a worker process that
    counts a reference to a string copies its memory page, so each worker process would copy a million
    strings.
    """

    folder: Path
    paths: Shaped[np.ndarray, " n"]
    """Paths relative to the folder, as bytes."""
    shape: tuple[int, int, int]
    original_sizes: Int32[np.ndarray, "n 2"]
    """Height and width of each file's image."""
    source_fingerprint: str
    """Hash of the names, sizes and byte chunks of the files."""

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the files."""
        return self.source_fingerprint

    def name(self, row: int) -> str:
        """Return the path of a row, relative to the folder."""
        return os.fsdecode(self.paths[row])

    def read(self, rows: Int64[np.ndarray, " n"], progress: ProgressCallback | None = None) -> UInt8[Tensor, "n c h w"]:
        """Decode the central squares of these rows, resized to `shape`."""
        channels, size, _ = self.shape
        out = torch.empty(len(rows), *self.shape, dtype=torch.uint8)
        for target, values in zip(out.numpy(), self._each(rows, lambda path, i: decode_image(path, channels, size), progress), strict=True):
            target[:] = values
        return out

    def get_original_sizes(self, rows: Int64[np.ndarray, " n"]) -> Int32[np.ndarray, "n 2"]:
        """Return the height and width of each file's image, shape (n, 2)."""
        return self.original_sizes[rows]

    def read_crops(
        self, rows: Int64[np.ndarray, " n"], boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]
    ) -> list[UInt8[Tensor, "n c _s _s"]]:
        """Decode the crops of each view from the files."""
        channels = self.shape[0]
        out = [torch.empty(len(rows), channels, size, size, dtype=torch.uint8) for size in sizes]
        for row, views in enumerate(self._each(rows, lambda path, i: decode_crops(path, channels, boxes[i], sizes))):
            for target, view in zip(out, views, strict=True):
                target[row] = view
        return out

    def _each(
        self, rows: Int64[np.ndarray, " n"], work: Callable[[Path, int], _Result], progress: ProgressCallback | None = None
    ) -> Iterator[_Result]:
        """Yield work(path, i) for the i-th row, in order.

        An error names the file.
        """

        def named(i: int) -> _Result:
            path = self.folder / self.name(int(rows[i]))
            try:
                return work(path, i)
            except BrokenImage as e:
                raise e.to_usage_error(path) from e

        return map_in_threads(named, range(len(rows)), progress)


def hash_bytes(*parts: bytes | memoryview) -> str:
    """Return the blake2b hash of byte strings, in hexadecimal.

    The lengths are hashed too, so that ("ab", "c") and ("a", "bc") differ.
    """
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()


def fingerprint_file(path: Path) -> str:
    """Return a file's size and a hash of three chunks of its bytes.

    The chunks come from the beginning, the middle and the end: hashing whole files would take hours. An image
    that is saved again differs in all its compressed bytes. A changed orientation differs at the beginning.
    The modification time is left out: it differs between copies of the same files, and a run may be resumed
    with another copy.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        samples = []
        for start in (0, (size - FINGERPRINT_CHUNK_BYTES) // 2, size - FINGERPRINT_CHUNK_BYTES):
            file.seek(max(start, 0))
            samples.append(file.read(FINGERPRINT_CHUNK_BYTES))
    return f"{size} {hash_bytes(*samples)}"

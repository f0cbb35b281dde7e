"""Where pixels come from. Rows are counted in the order of the source and never renumbered."""

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
"""Bytes of each of the three samples that a file's mark is made from."""

_Result = TypeVar("_Result")


class ImageStore(ABC):
    """Images of one shape, by row."""

    shape: tuple[int, int, int]
    """(channels, height, width)"""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, row: int) -> str:
        """What a person would call this image."""

    @abstractmethod
    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]: ...

    def get_original_sizes(self, rows: Int64[np.ndarray, " n"]) -> Int32[np.ndarray, "n 2"] | None:
        """Height and width of the files that `read_crops` can cut windows from; None where images of `shape` are all there is."""
        return None

    def read_crops(
        self, rows: Int64[np.ndarray, " n"], boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]
    ) -> list[UInt8[Tensor, "n c _s _s"]]:
        """For each view its windows, scaled to its size."""
        raise NotImplementedError(f"{type(self).__name__} has no files to cut windows from")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the images do."""


@dataclass(frozen=True, eq=False)
class InMemoryImageStore(ImageStore):
    """All pixels in one tensor, which worker processes share instead of copying."""

    pixels: UInt8[Tensor, "n c h w"]
    names: tuple[str, ...] | None = None
    """Paths, where the pixels were decoded from files; otherwise rows are called "row 17"."""
    source_fingerprint: str | None = None
    """Fingerprint of the files that the pixels were decoded from; otherwise the pixels themselves are hashed."""

    shape: tuple[int, int, int] = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(self.pixels.shape[1:]))

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, row: int) -> str:
        return self.names[row] if self.names else f"row {row}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        return self.pixels[torch.from_numpy(rows).to(self.pixels.device, non_blocking=True)]

    @property
    def fingerprint(self) -> str:
        return f"{self.source_fingerprint or ''}{self._digest}"

    @cached_property
    def _digest(self) -> str:
        return hash_bytes(str(tuple(self.pixels.shape)).encode(), self.pixels.numpy().reshape(-1).data)


@dataclass(frozen=True, eq=False)
class ImageFileStore(ImageStore):
    """Images that are decoded when they are read.

    All it knows of the files lies in arrays: a million Python strings would be copied, page by page, into every worker
    process that counts a reference to one of them.
    """

    folder: Path
    paths: Shaped[np.ndarray, " n"]
    """Relative to the folder, as bytes."""
    shape: tuple[int, int, int]
    original_sizes: Int32[np.ndarray, "n 2"]
    """Height and width of each file's image."""
    source_fingerprint: str
    """Hash of the files' names, sizes and samples of their bytes."""

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def fingerprint(self) -> str:
        return self.source_fingerprint

    def name(self, row: int) -> str:
        return os.fsdecode(self.paths[row])

    def read(self, rows: Int64[np.ndarray, " n"], progress: ProgressCallback | None = None) -> UInt8[Tensor, "n c h w"]:
        """The central squares at `shape`."""
        channels, size, _ = self.shape
        out = torch.empty(len(rows), *self.shape, dtype=torch.uint8)
        for target, values in zip(out.numpy(), self._each(rows, lambda path, i: decode_image(path, channels, size), progress), strict=True):
            target[:] = values
        return out

    def get_original_sizes(self, rows: Int64[np.ndarray, " n"]) -> Int32[np.ndarray, "n 2"]:
        return self.original_sizes[rows]

    def read_crops(
        self, rows: Int64[np.ndarray, " n"], boxes: Float[np.ndarray, "n v 4"], sizes: Sequence[int]
    ) -> list[UInt8[Tensor, "n c _s _s"]]:
        channels = self.shape[0]
        out = [torch.empty(len(rows), channels, size, size, dtype=torch.uint8) for size in sizes]
        for row, views in enumerate(self._each(rows, lambda path, i: decode_crops(path, channels, boxes[i], sizes))):
            for target, view in zip(out, views, strict=True):
                target[row] = view
        return out

    def _each(
        self, rows: Int64[np.ndarray, " n"], work: Callable[[Path, int], _Result], progress: ProgressCallback | None = None
    ) -> Iterator[_Result]:
        """work(path, i) for the i-th row, in order; an error names the file."""

        def named(i: int) -> _Result:
            path = self.folder / self.name(int(rows[i]))
            try:
                return work(path, i)
            except BrokenImage as e:
                raise e.to_usage_error(path) from e

        return map_in_threads(named, range(len(rows)), progress)


def hash_bytes(*parts: bytes | memoryview) -> str:
    """blake2b of byte strings; their lengths are hashed too, so that ("ab", "c") and ("a", "bc") differ."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()


def fingerprint_file(path: Path) -> str:
    """A file's size and a hash of samples from its beginning, its middle and its end: whole files would take hours to hash.

    An image saved anew differs in all its compressed bytes, a changed orientation at the beginning. The time of the last
    change is left out: it differs between copies of the same files, and a run may go on beside another copy.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        samples = []
        for start in (0, (size - FINGERPRINT_CHUNK_BYTES) // 2, size - FINGERPRINT_CHUNK_BYTES):
            file.seek(max(start, 0))
            samples.append(file.read(FINGERPRINT_CHUNK_BYTES))
    return f"{size} {hash_bytes(*samples)}"

"""Where pixels come from. Rows are counted in the order of the source and never renumbered."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nearfar.data.decode import BrokenImage, Progress, decode, in_threads


class Store(ABC):
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

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the images do."""


@dataclass(frozen=True, eq=False)
class InMemory(Store):
    """All pixels in one tensor, which worker processes share instead of copying."""

    pixels: UInt8[Tensor, "n c h w"]
    names: tuple[str, ...] | None = None
    """Paths, where the pixels were decoded from files; otherwise rows are called "row 17"."""
    origin: str | None = None
    """Fingerprint of the files that the pixels were decoded from; otherwise the pixels themselves are hashed."""

    shape: tuple[int, int, int] = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(self.pixels.shape[1:]))

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, row: int) -> str:
        return self.names[row] if self.names else f"row {row}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        return self.pixels[torch.from_numpy(rows)]

    @property
    def fingerprint(self) -> str:
        return f"{self.origin or ''}{self._digest}"

    @cached_property
    def _digest(self) -> str:
        return digest(str(tuple(self.pixels.shape)).encode(), self.pixels.numpy().reshape(-1).data)


@dataclass(frozen=True, eq=False)
class Files(Store):
    """Images that are decoded when they are read."""

    folder: Path
    paths: tuple[str, ...]
    shape: tuple[int, int, int]
    origin: str
    """Hash of the files' names and sizes."""

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def fingerprint(self) -> str:
        return self.origin

    def name(self, row: int) -> str:
        return self.paths[row]

    def read(self, rows: Int64[np.ndarray, " n"], progress: Progress | None = None) -> UInt8[Tensor, "n c h w"]:
        out = torch.empty(len(rows), *self.shape, dtype=torch.uint8)
        for target, values in zip(out.numpy(), in_threads(self._decode, rows.tolist(), progress), strict=True):
            target[:] = values
        return out

    def _decode(self, row: int) -> np.ndarray:
        path = self.folder / self.paths[row]
        try:
            return decode(path, self.shape[0], self.shape[1])
        except BrokenImage as e:
            raise e.usage_error(path) from e


def digest(*parts: bytes | memoryview) -> str:
    """blake2b of byte strings; their lengths are hashed too, so that ("ab", "c") and ("a", "bc") differ."""
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()

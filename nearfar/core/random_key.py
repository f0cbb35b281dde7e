"""Counter-based random numbers that depend on names instead of a generator's history.

A `RandomKey` names a stream and a *slot* names a row of the stream. The number at (key, slot, column) is a
hash of these three. The number does not depend on the process, the order of draws, the device or the other
numbers drawn. Resume, worker processes, chunks and ranks are therefore exact.

    RandomKey(seed)("views", "crop").uniform(slots, 4)      -> (len(slots), 4) floats in [0, 1)

Integers are hashed with splitmix64, which wraps modulo 2^64 both in numpy (uint64) and in torch (int64). The
conversion to floats uses exact operations only. numpy and torch therefore agree bit for bit on every device.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import overload

import numpy as np
import torch
from torch import Tensor

logger = logging.getLogger("nearfar")

_GOLDEN, _MIX1, _MIX2, _COLUMN = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD1342543DE82EF95
_QUANTILES = 1 << 16


def _signed(word: int) -> int:
    """Convert an unsigned 64-bit integer to the signed integer with the same bits, for torch.int64."""
    return word - (1 << 64) if word >= 1 << 63 else word


def _mix_numpy(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x = x + np.uint64(_GOLDEN)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX2)
        return x ^ (x >> np.uint64(31))


def _shift(x: Tensor, k: int) -> Tensor:
    """Shift right without sign extension; torch's `>>` on int64 copies the sign bit."""
    return (x >> k) & ((1 << (64 - k)) - 1)


def _mix_torch(x: Tensor) -> Tensor:
    x = x + _signed(_GOLDEN)
    x = (x ^ _shift(x, 30)) * _signed(_MIX1)
    x = (x ^ _shift(x, 27)) * _signed(_MIX2)
    return x ^ _shift(x, 31)


@functools.lru_cache(maxsize=8)
def _quantiles(device: str) -> Tensor:
    """Return standard normal quantiles at the centers of 2^16 equal cells, scaled to variance 1."""
    p = (torch.arange(_QUANTILES, dtype=torch.float64) + 0.5) / _QUANTILES
    q = torch.special.ndtri(p)
    return (q / q.square().mean().sqrt()).float().to(device)


@functools.cache
def _kernels(device: str) -> ModuleType | None:
    """Return the module of Triton kernels for the hash, or None.

    A kernel needs one launch per draw. The kernels are used only if Triton is installed, can compile them,
    and gives the same numbers as the CPU.
    """
    try:
        from nearfar.core import gpu_hashing as hashing

        rng_key, slots = RandomKey(0)("kernels"), torch.arange(80) << 33
        for draw in ("bits", "uniform"):
            found = getattr(hashing, draw)(slots.to(device), _signed(rng_key.hash_value), 13).cpu()
            if not torch.equal(found, getattr(rng_key, draw)(slots, 13)):
                raise ValueError("the kernel's numbers are not those of the CPU")
    except Exception as e:  # torch's own operations are the fallback, with the same numbers
        logger.info("random numbers on %s are made by many small operations: %s", device, (str(e) or type(e).__name__).splitlines()[0])
        return None
    return hashing


@functools.lru_cache(maxsize=65536)
def _word(seed: int, path: tuple[str | int, ...]) -> int:
    name = repr((seed, path)).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class RandomKey:
    """Name of a stream of random numbers: `RandomKey(seed)("order", epoch)`.

    A key has no state. Equal names give equal numbers.

    In the methods below, `slots` is an integer array or tensor of shape (n,). A numpy array gives a numpy
    array, and a tensor gives a tensor on the same device.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def __call__(self, *names: str | int | np.integer) -> RandomKey:
        return RandomKey(self.seed, self.path + tuple(n if isinstance(n, str) else int(n) for n in names))

    @property
    def hash_value(self) -> int:
        """Hash of this name: an unsigned 64-bit integer."""
        return _word(self.seed, self.path)

    @overload
    def bits(self, slots: np.ndarray, columns: int = ...) -> np.ndarray: ...
    @overload
    def bits(self, slots: Tensor, columns: int = ...) -> Tensor: ...
    def bits(self, slots, columns=1):
        """Return hashes of shape `(len(slots), columns)`.

        The dtype is uint64 for a numpy array of slots, and int64 with the same bits for a tensor.
        """
        if isinstance(slots, Tensor):
            if slots.is_cuda and (gpu := _kernels(str(slots.device))):
                return gpu.bits(slots.long(), _signed(self.hash_value), columns)
            row = _mix_torch(_mix_torch(slots.long()) ^ _signed(self.hash_value))
            column = torch.arange(columns, device=slots.device) * _signed(_COLUMN)
            return _mix_torch(row[:, None] + column)
        row = _mix_numpy(_mix_numpy(np.asarray(slots).astype(np.uint64)) ^ np.uint64(self.hash_value))
        with np.errstate(over="ignore"):
            column = np.arange(columns, dtype=np.uint64) * np.uint64(_COLUMN)
            return _mix_numpy(row[:, None] + column)

    @overload
    def uniform(self, slots: np.ndarray, *shape: int) -> np.ndarray: ...
    @overload
    def uniform(self, slots: Tensor, *shape: int) -> Tensor: ...
    def uniform(self, slots, *shape):
        """Draw uniform numbers in [0, 1), float32, shape `(len(slots), *shape)`.

        The numbers are multiples of 2^-24, so the conversion to float32 is exact.
        """
        if isinstance(slots, Tensor) and slots.is_cuda and (gpu := _kernels(str(slots.device))):
            return gpu.uniform(slots.long(), _signed(self.hash_value), math.prod(shape)).view(len(slots), *shape)
        bits = self.bits(slots, math.prod(shape))
        if isinstance(bits, Tensor):
            return (_shift(bits, 40).float() * 2.0**-24).view(len(bits), *shape)
        return ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)).reshape(len(bits), *shape)

    @overload
    def normal(self, slots: np.ndarray, *shape: int) -> np.ndarray: ...
    @overload
    def normal(self, slots: Tensor, *shape: int) -> Tensor: ...
    def normal(self, slots, *shape):
        """Draw standard normal numbers, float32, shape `(len(slots), *shape)`.

        16 bits of the hash select an entry of a table of quantiles. A table replaces Box-Muller because
        logarithms and cosines differ in the last bit between libraries. The limit is 65,536 distinct values;
        the largest is 4.3.
        """
        bits = self.bits(slots, math.prod(shape))
        if isinstance(bits, Tensor):
            return _quantiles(str(bits.device))[_shift(bits, 48)].view(len(bits), *shape)
        return _quantiles("cpu").numpy()[(bits >> np.uint64(48)).astype(np.int64)].reshape(len(bits), *shape)

    @overload
    def integers(self, slots: np.ndarray, high: int, *shape: int) -> np.ndarray: ...
    @overload
    def integers(self, slots: Tensor, high: int, *shape: int) -> Tensor: ...
    def integers(self, slots, high, *shape):
        """Draw integers in [0, high), int64, shape `(len(slots), *shape)`.

        `high` must be below 2^31. The bias is below high / 2^32.
        """
        bits = self.bits(slots, math.prod(shape))
        if isinstance(bits, Tensor):
            return (_shift(bits, 32) * high >> 32).view(len(bits), *shape)
        return (((bits >> np.uint64(32)) * np.uint64(high)) >> np.uint64(32)).astype(np.int64).reshape(len(bits), *shape)

    def permutation(self, n: int) -> np.ndarray:
        """Draw a permutation of range(n)."""
        return np.argsort(self.bits(np.arange(n))[:, 0], kind="stable")

    def seed_torch(self) -> None:
        """Seed torch's generators, CPU and CUDA, for code that uses them, such as dropout.

        The generator objects are seeded directly because `torch.manual_seed` takes a hundred times as long.
        """
        torch.default_generator.manual_seed(self.hash_value >> 1)
        if torch.cuda.is_initialized():
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(self.hash_value >> 1)

    @contextlib.contextmanager
    def fork_torch_rng(self) -> Iterator[None]:
        """Seed torch's generators from this key within the block, then restore their state."""
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.default_generator.manual_seed(self.hash_value >> 1)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(self.hash_value >> 1)
            yield

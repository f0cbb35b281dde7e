"""Sounds of one length and rate, in memory, behind the interface of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.data.common.dataset import Ids, Samples, as_index_array
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.splits import Splits, split_train_test

MAX_AMPLITUDE = 32767
"""The largest value of a sample: full scale."""


@dataclass(frozen=True, eq=False)
class SoundStore:
    """All clips of a source in one tensor. What is shorter than the rest is followed by zeros."""

    clips: Int16[Tensor, "n t"]
    sample_rate: int
    """Samples a second."""
    names: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    """For each clip who spoke it, or which fold of the data it belongs to: what must not stand on both sides of a split."""

    def __len__(self) -> int:
        return len(self.clips)

    def name(self, row: int) -> str:
        return self.names[row] if self.names else f"row {row}"

    @cached_property
    def fingerprint(self) -> str:
        return hash_bytes(str((tuple(self.clips.shape), self.sample_rate)).encode(), self.clips.numpy().reshape(-1).data)


@dataclass(frozen=True, eq=False)
class Sounds(Samples):
    """Some clips of a store."""

    store: SoundStore

    @property
    def sample_rate(self) -> int:
        return self.store.sample_rate

    @property
    def clip_length(self) -> int:
        """Length of every clip."""
        return self.store.clips.shape[1]

    @property
    def groups(self) -> tuple[str, ...] | None:
        return None if self.store.groups is None else tuple(self.store.groups[i] for i in self.ids)

    def read(self, ids: Ids) -> Int16[Tensor, "n t"]:
        return self.store.clips[torch.from_numpy(self.ids[as_index_array(ids)])]

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "sample_rate": self.sample_rate, "samples": self.clip_length, "classes": len(self.classes)}


def split_sounds(loaded: Splits, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Complete what a reader found. Where clips have groups, a whole group is for testing: number `seed`, counted around, of the
    sorted names; so each speaker or fold in turn as the seed goes up. Else as for images."""
    names = sorted(set(loaded.train.groups or ()))
    if loaded.test is None and stored_test_ids is None and len(names) > 1:
        stored_test_ids = np.flatnonzero(np.array(loaded.train.groups) == names[seed % len(names)])
    return split_train_test(loaded, seed, stored_test_ids)


def format_groups(part: Sounds) -> str:
    """The groups of a split in words, for reports."""
    return ", ".join(sorted(set(part.groups or ())))


def as_clips(sounds: np.ndarray | Tensor, description: str) -> Int16[Tensor, "n t"]:
    """A copy of an array (n, time) as int16. Floats are in [-1, 1]."""
    values = sounds.detach().cpu().numpy() if isinstance(sounds, Tensor) else np.asarray(sounds)
    if values.ndim != 2 or not values.size:
        raise UsageError(f"{description} has the shape {values.shape}; sounds have the shape (n, time), with at least one sample")
    if values.dtype == np.int16:
        return torch.from_numpy(values.copy())
    if not np.issubdtype(values.dtype, np.floating):
        raise UsageError(f"{description} holds {values.dtype}; sounds are int16 or floats in [-1, 1]")
    if not (np.abs(values) <= 1).all():
        raise UsageError(f"{description} holds floats beyond [-1, 1] or not a number; sounds are int16 or floats in [-1, 1]")
    return torch.from_numpy(quantize_waveform(values))


def quantize_waveform(waveform: Float[np.ndarray, "..."]) -> Int16[np.ndarray, "..."]:
    """Floats in [-1, 1] as 16 bits; what is louder is cut off."""
    return (waveform.clip(-1, 1) * MAX_AMPLITUDE).round().astype(np.int16)


def crop_or_pad(clips: Int16[Tensor, "n t"], length: int) -> Int16[Tensor, "n samples"]:
    """The middle of longer clips; shorter ones are followed by zeros."""
    extra = clips.shape[1] - length
    if extra >= 0:
        return clips[:, extra // 2 : extra // 2 + length]
    return torch.nn.functional.pad(clips, (0, -extra))

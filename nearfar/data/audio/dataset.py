"""Sound clips of one length and one sample rate, held in memory.

The classes have the same interface as the image datasets.
"""

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
"""Largest int16 amplitude (full scale)."""


@dataclass(frozen=True, eq=False)
class SoundStore:
    """All clips of a source in one tensor.

    Short clips are padded with zeros at the end.
    """

    clips: Int16[Tensor, "n t"]
    sample_rate: int
    """Audio samples per second."""
    names: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    """Group of each clip: its speaker, or its fold of the dataset. A split keeps each group on one side."""

    def __len__(self) -> int:
        return len(self.clips)

    def name(self, row: int) -> str:
        """Return the file name of a clip, or its row number."""
        return self.names[row] if self.names else f"row {row}"

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the shape, the sample rate and all clips."""
        return hash_bytes(str((tuple(self.clips.shape), self.sample_rate)).encode(), self.clips.numpy().reshape(-1).data)


@dataclass(frozen=True, eq=False)
class Sounds(Samples):
    """Subset of the clips of a store."""

    store: SoundStore

    @property
    def sample_rate(self) -> int:
        """Return the number of audio samples per second."""
        return self.store.sample_rate

    @property
    def clip_length(self) -> int:
        """Return the length of every clip in audio samples."""
        return self.store.clips.shape[1]

    @property
    def groups(self) -> tuple[str, ...] | None:
        """Return the group of each clip, or None."""
        return None if self.store.groups is None else tuple(self.store.groups[i] for i in self.ids)

    def read(self, ids: Ids) -> Int16[Tensor, "n t"]:
        return self.store.clips[torch.from_numpy(self.ids[as_index_array(ids)])]

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "sample_rate": self.sample_rate, "samples": self.clip_length, "classes": len(self.classes)}


def split_sounds(loaded: Splits, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Split loaded sounds into a training and a test split.

    If clips have groups, one whole group becomes the test split: the sorted group name at position `seed`
    modulo the number of groups. Each speaker or fold is therefore tested in turn as the seed increases.
    Otherwise the split is drawn as for images.

    Args:
        loaded: splits that the reader found; a given test split is kept.
        seed: random seed, or position of the test group.
        stored_test_ids: test rows stored by an earlier run, or None.
    """
    names = sorted(set(loaded.train.groups or ()))
    if loaded.test is None and stored_test_ids is None and len(names) > 1:
        stored_test_ids = np.flatnonzero(np.array(loaded.train.groups) == names[seed % len(names)])
    return split_train_test(loaded, seed, stored_test_ids)


def format_groups(part: Sounds) -> str:
    """Return the group names of a split as text, for reports."""
    return ", ".join(sorted(set(part.groups or ())))


def as_clips(sounds: np.ndarray | Tensor, description: str) -> Int16[Tensor, "n t"]:
    """Return a copy of an array of sounds as int16 clips.

    Args:
        sounds: `(n, time)` int16, or floats in [-1, 1].
        description: name of the array in error messages.

    Raises:
        UsageError: wrong shape, wrong data type, or floats outside [-1, 1].
    """
    values = sounds.detach().cpu().numpy() if isinstance(sounds, Tensor) else np.asarray(sounds)
    if values.ndim != 2 or not values.size:
        raise UsageError(f"{description} has the shape {values.shape}; sounds must have the shape (n, time), with at least one sample")
    if values.dtype == np.int16:
        return torch.from_numpy(values.copy())
    if not np.issubdtype(values.dtype, np.floating):
        raise UsageError(f"{description} holds {values.dtype}; sounds must be int16 or floats in [-1, 1]")
    if not (np.abs(values) <= 1).all():
        raise UsageError(f"{description} holds NaN or floats outside [-1, 1]; sounds must be int16 or floats in [-1, 1]")
    return torch.from_numpy(quantize_waveform(values))


def quantize_waveform(waveform: Float[np.ndarray, "..."]) -> Int16[np.ndarray, "..."]:
    """Convert floats in [-1, 1] to int16. Louder values are clipped."""
    return (waveform.clip(-1, 1) * MAX_AMPLITUDE).round().astype(np.int16)


def crop_or_pad(clips: Int16[Tensor, "n t"], length: int) -> Int16[Tensor, "n samples"]:
    """Crop or pad clips to a length.

    Crops are centered. Padding adds zeros at the end.

    Returns:
        Clips of shape `(n, length)`.
    """
    extra = clips.shape[1] - length
    if extra >= 0:
        return clips[:, extra // 2 : extra // 2 + length]
    return torch.nn.functional.pad(clips, (0, -extra))

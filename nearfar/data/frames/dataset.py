"""Frames of games or films: ordered images in episodes, with state variables where known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nearfar.core.random_key import RandomKey
from nearfar.data.common.image_stores import ImageStore, InMemoryImageStore
from nearfar.data.common.splits import Splits, split_train_test
from nearfar.data.frames.readers import Recording
from nearfar.data.images.dataset import Images

MIN_EPISODES_TO_SPLIT = 4
"""Smallest number of episodes for a test split. With fewer episodes there is no test split."""
TEST_SHARE, PROBE_TEST_SHARE = 2 / 5, 1 / 4
"""Share of all episodes that the encoder is not trained on, and share of these that test the probes.

The remaining held-out episodes train the probes.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Frames(Images):
    """Subset of the frames of a store, in time order.

    Frames have no classes. `values` holds the state variables, which are used only for evaluation.
    """

    episode: Int64[np.ndarray, " n"]
    values: Int64[np.ndarray, "n v"] | None = None
    variables: tuple[str, ...] = ()

    per_sample_fields = ("ids", "labels", "episode", "values")

    @cached_property
    def pair_starts(self) -> Int64[np.ndarray, " m"]:
        """Return positions t with the next frame at t + 1.

        Both frames are of the same episode.
        """
        follows = (self.episode[1:] == self.episode[:-1]) & (self.ids[1:] == self.ids[:-1] + 1)
        return np.flatnonzero(follows)

    def name(self, i: int) -> str:
        return f"episode {self.episode[i]}, {self.store.name(int(self.ids[i]))}"

    def drop_labels(self) -> Frames:
        """Return the same frames without the values of their variables."""
        return replace(super().drop_labels(), values=None, variables=())

    def sizes(self) -> dict[str, Any]:
        channels, height, width = self.shape
        return {"n": len(self), "channels": channels, "height": height, "width": width, "classes": 0}


@dataclass(frozen=True, eq=False)
class DecodedRecording(InMemoryImageStore):
    """Decoded frames of a recording in memory.

    The checksums of the file serve as the fingerprint (`source_fingerprint`).
    """

    @property
    def fingerprint(self) -> str:
        assert self.source_fingerprint is not None
        return self.source_fingerprint


@dataclass(frozen=True, eq=False)
class RecordingStore(ImageStore):
    """Frames that are read from the recording file on demand."""

    recording: Recording
    shape: tuple[int, int, int] = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "shape", (1, *self.recording.shape))

    def __len__(self) -> int:
        return len(self.recording)

    def name(self, row: int) -> str:
        return f"row {row}"

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n c h w"]:
        return torch.from_numpy(self.recording.read_pixels(rows))[:, None]

    @property
    def fingerprint(self) -> str:
        return self.recording.fingerprint


def split_frames(data: Frames, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Split frames by episode.

    Two in five episodes become the test split. Adjacent frames are too similar to be in both splits, so
    episodes are never divided.

    Args:
        data: all frames.
        seed: random seed of the split.
        stored_test_ids: test rows stored by an earlier run, or None.
    """
    if stored_test_ids is None:
        chosen = draw_episodes(data, RandomKey(seed)("split"), TEST_SHARE) if len(np.unique(data.episode)) >= MIN_EPISODES_TO_SPLIT else []
        stored_test_ids = np.flatnonzero(np.isin(data.episode, chosen))
    return split_train_test(Splits(data, None), seed, stored_test_ids)


def draw_episodes(data: Frames, rng_key: RandomKey, share: float) -> Int64[np.ndarray, " k"]:
    """Draw a share of the episodes at random, at least one.

    Return their numbers.
    """
    episodes = np.unique(data.episode)
    return episodes[rng_key.permutation(len(episodes))[: max(1, round(share * len(episodes)))]]


def split_probe_episodes(data: Frames, rng_key: RandomKey) -> tuple[Frames, Frames]:
    """Split frames by episode into training and test frames for probes.

    Test frames that also occur in the training frames are removed.
    """
    asked = np.isin(data.episode, draw_episodes(data, rng_key, PROBE_TEST_SHARE))
    teach, test = data.subset(np.flatnonzero(~asked)), data.subset(np.flatnonzero(asked))
    seen = set(_hash_frames(teach))
    return teach, test.subset(np.array([i for i, mark in enumerate(_hash_frames(test)) if mark not in seen], dtype=np.int64))


def _hash_frames(data: Frames) -> list[bytes]:
    from hashlib import blake2b

    return [
        blake2b(frame.tobytes(), digest_size=16).digest()
        for start in range(0, len(data), 512)
        for frame in data.read(np.arange(start, min(start + 512, len(data)))).cpu().numpy()
    ]

"""Frames of games or films: images in time, in episodes, with the values of state variables where they are known."""

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
"""With fewer episodes there is no test split."""
TEST_SHARE, PROBE_TEST_SHARE = 2 / 5, 1 / 4
"""Of all episodes so many are not for the encoder; of these, so many are asked about, and the others teach the probes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Frames(Images):
    """Some frames of a store, in the order of time. They have no classes; `values` are of state variables, for evaluation."""

    episode: Int64[np.ndarray, " n"]
    values: Int64[np.ndarray, "n v"] | None = None
    variables: tuple[str, ...] = ()

    per_sample_fields = ("ids", "labels", "episode", "values")

    @cached_property
    def pair_starts(self) -> Int64[np.ndarray, " m"]:
        """Positions t of frames whose next frame, of the same episode, stands at t + 1."""
        follows = (self.episode[1:] == self.episode[:-1]) & (self.ids[1:] == self.ids[:-1] + 1)
        return np.flatnonzero(follows)

    def name(self, i: int) -> str:
        return f"episode {self.episode[i]}, {self.store.name(int(self.ids[i]))}"

    def drop_labels(self) -> Frames:
        """The same frames without the values of their variables."""
        return replace(super().drop_labels(), values=None, variables=())

    def sizes(self) -> dict[str, Any]:
        channels, height, width = self.shape
        return {"n": len(self), "channels": channels, "height": height, "width": width, "classes": 0}


@dataclass(frozen=True, eq=False)
class DecodedRecording(InMemoryImageStore):
    """Frames of a recording in memory. The file's own checksums stand for them: `origin`."""

    @property
    def fingerprint(self) -> str:
        assert self.source_fingerprint is not None
        return self.source_fingerprint


@dataclass(frozen=True, eq=False)
class RecordingStore(ImageStore):
    """Frames that are read from their file when they are asked for."""

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
    """Whole episodes, two in five of them, are for testing: neighbouring frames are too much alike to stand on both sides."""
    if stored_test_ids is None:
        chosen = draw_episodes(data, RandomKey(seed)("split"), TEST_SHARE) if len(np.unique(data.episode)) >= MIN_EPISODES_TO_SPLIT else []
        stored_test_ids = np.flatnonzero(np.isin(data.episode, chosen))
    return split_train_test(Splits(data, None), seed, stored_test_ids)


def draw_episodes(data: Frames, rng_key: RandomKey, share: float) -> Int64[np.ndarray, " k"]:
    """A share of the episodes, by their numbers; at least one."""
    episodes = np.unique(data.episode)
    return episodes[rng_key.permutation(len(episodes))[: max(1, round(share * len(episodes)))]]


def split_probe_episodes(data: Frames, rng_key: RandomKey) -> tuple[Frames, Frames]:
    """Episodes for probes to learn from, and others to ask about; of the latter no frame that is in the former."""
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

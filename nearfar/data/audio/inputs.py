"""Sounds, brought to the rate and the length a net was trained with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import Run, Sizes, UsageError
from nearfar.data.audio.dataset import LOUDEST, Sounds, SoundStore, as_clips, divide_sounds, of_length, quantised
from nearfar.data.audio.readers import EXTENSIONS, HIGHEST_RATE, HowSound, read_sound_files, read_sound_folder, resampled
from nearfar.data.common.arrays import as_labels, number_classes
from nearfar.data.common.input_interface import Inputs, Progress
from nearfar.data.common.missing import missing
from nearfar.data.common.splits import Splits
from nearfar.data.samples.tones import tones

NAMES = {"tones": tones}


@dataclass(frozen=True)
class AudioInputs(Inputs):
    reads = ("rate", "seconds")

    sizes: Sizes | None = None
    tokenizer: None = None

    def open(self, spec: Any, run: Run, split: Sequence[int] | None = None, progress: Progress | None = None) -> Splits:
        found = read_sounds(spec, self._how(run, progress))
        if len(found) < 2:
            raise UsageError(f"{found.source} has {len(found)} sound to learn from; at least 2 are needed")
        return divide_sounds(Splits(found, None), run.seed, split)

    def all(self, spec: Any, run: Run, progress: Progress | None = None) -> list[Any]:
        return [read_sounds(spec, self._how(run, progress))]

    def accept(self, what: Any) -> list[Any]:
        return [read_sounds(what, self._how(Run()))]

    def _how(self, run: Run, progress: Progress | None = None) -> HowSound:
        if self.sizes is None:
            return HowSound(run.rate, None, run.seconds, run.on_error, progress)
        return HowSound(self.sizes["rate"], self.sizes["samples"], None, run.on_error, progress)


def read_sounds(spec: Any, how: HowSound) -> Sounds:
    """A name, a folder, a file, a list of files, an array (n, time) at the rate asked for, a pair (array, labels), or opened sounds."""
    if isinstance(spec, Sounds):
        return _brought(spec, how)
    if isinstance(spec, str) and spec in NAMES:
        return _brought(NAMES[spec](), how)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), how)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(path, (str, os.PathLike)) for path in spec):
        return read_sound_files(spec, how, f"list of {len(spec)} files")
    if isinstance(spec, (np.ndarray, Tensor)):
        return _read_array(spec, None, how)
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], (np.ndarray, Tensor)):
        return _read_array(*spec, how)
    raise UsageError(f"cannot read sounds from a {type(spec).__name__}: give a name, a path, an array (n, time) or a pair (array, labels)")


def _read_path(text: str, how: HowSound) -> Sounds:
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'tones' or a folder of sound files")
    if path.is_dir():
        return read_sound_folder(path, how, text)
    if path.is_file() and path.suffix.lower() in EXTENSIONS:
        return read_sound_files([path], how, text)
    if path.is_file():
        raise UsageError(f"cannot read sounds from the file {path}: give a folder, or a file that ends in {' '.join(EXTENSIONS)}")
    raise missing(text, NAMES)


def _read_array(sounds: np.ndarray | Tensor, labels: Any, how: HowSound) -> Sounds:
    source = f"{'tensor' if isinstance(sounds, Tensor) else 'array'} of shape {tuple(sounds.shape)}"
    store = SoundStore(as_clips(sounds, f"the {source}"), how.rate or HIGHEST_RATE)
    (coded,), classes = number_classes(None if labels is None else as_labels(labels, len(store), f"the {source}", "sounds"))
    return _brought(Sounds(store, np.arange(len(store)), coded, classes, source), how)


def _brought(data: Sounds, how: HowSound) -> Sounds:
    """Opened sounds at the rate and length asked for."""
    rate, clips = how.rate or data.rate, data.store.clips
    if rate != data.rate:
        waves = [resampled(clip.numpy().astype(np.float32) / LOUDEST, data.rate, rate) for clip in clips]
        clips = torch.from_numpy(quantised(np.stack(waves)))
    samples = how.samples or (clips.shape[1] if how.seconds is None else max(1, round(how.seconds * rate)))
    if clips is data.store.clips and samples == data.samples:
        return data
    return replace(data, store=replace(data.store, clips=of_length(clips, samples).contiguous(), rate=rate))

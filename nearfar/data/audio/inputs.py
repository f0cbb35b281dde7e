"""Loading of sounds at the sample rate and clip length of a trained model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import Sizes, TrainConfig, UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.audio.dataset import MAX_AMPLITUDE, Sounds, SoundStore, as_clips, crop_or_pad, quantize_waveform, split_sounds
from nearfar.data.audio.readers import (
    DEFAULT_MAX_SAMPLE_RATE,
    SOUND_EXTENSIONS,
    SoundReadOptions,
    read_sound_files,
    read_sound_folder,
    resample,
)
from nearfar.data.common.arrays import as_label_array, encode_labels
from nearfar.data.common.input_interface import Inputs
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.common.splits import Splits
from nearfar.data.samples.tones import make_tones

BUILTIN_SOUNDS = {"tones": make_tones}
"""Built-in datasets by name."""


@dataclass(frozen=True)
class AudioInputs(Inputs):
    """Input loader for sounds."""

    used_settings = ("sample_rate", "seconds")

    sizes: Sizes | None = None
    tokenizer: None = None

    def load_splits(
        self, spec: Any, config: TrainConfig, test_ids: Sequence[int] | None = None, progress: ProgressCallback | None = None
    ) -> Splits:
        found = load_all_sounds(spec, self._read_options(config, progress))
        if len(found) < 2:
            raise UsageError(f"{found.source} has {len(found)} sound to learn from; at least 2 are needed")
        return split_sounds(Splits(found, None), config.seed, test_ids)

    def load_all(self, spec: Any, config: TrainConfig, progress: ProgressCallback | None = None) -> list[Any]:
        return [load_all_sounds(spec, self._read_options(config, progress))]

    def adapt(self, samples: Any) -> list[Any]:
        return [load_all_sounds(samples, self._read_options(TrainConfig()))]

    def _read_options(self, config: TrainConfig, progress: ProgressCallback | None = None) -> SoundReadOptions:
        if self.sizes is None:
            return SoundReadOptions(config.sample_rate, None, config.seconds, config.on_error, progress)
        return SoundReadOptions(self.sizes["sample_rate"], self.sizes["samples"], None, config.on_error, progress)


def load_all_sounds(spec: Any, options: SoundReadOptions) -> Sounds:
    """Load all sounds of a source.

    Args:
        spec: built-in name, folder, file, list of files, array `(n, time)` at the requested sample rate,
            pair (array, labels), or loaded `Sounds`.
        options: sample rate, clip length and error handling.

    Raises:
        UsageError: the type of `spec` is not supported.
    """
    if isinstance(spec, Sounds):
        return _match_options(spec, options)
    if isinstance(spec, str) and spec in BUILTIN_SOUNDS:
        return _match_options(BUILTIN_SOUNDS[spec](), options)
    if isinstance(spec, (str, os.PathLike)):
        return _read_path(os.fspath(spec), options)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(path, (str, os.PathLike)) for path in spec):
        return read_sound_files(spec, options, f"list of {len(spec)} files")
    if isinstance(spec, (np.ndarray, Tensor)):
        return _read_array(spec, None, options)
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], (np.ndarray, Tensor)):
        return _read_array(*spec, options)
    raise UsageError(f"cannot read sounds from a {type(spec).__name__}: give a name, a path, an array (n, time) or a pair (array, labels)")


def _read_path(text: str, options: SoundReadOptions) -> Sounds:
    path = Path(text).expanduser()
    if not text:
        raise UsageError("no data given: give --data 'tones' or a folder of sound files")
    if path.is_dir():
        return read_sound_folder(path, options, text)
    if path.is_file() and path.suffix.lower() in SOUND_EXTENSIONS:
        return read_sound_files([path], options, text)
    if path.is_file():
        raise UsageError(f"cannot read sounds from the file {path}: give a folder, or a file that ends in {' '.join(SOUND_EXTENSIONS)}")
    raise build_missing_data_error(text, BUILTIN_SOUNDS)


def _read_array(sounds: np.ndarray | Tensor, labels: Any, options: SoundReadOptions) -> Sounds:
    source = f"{'tensor' if isinstance(sounds, Tensor) else 'array'} of shape {tuple(sounds.shape)}"
    store = SoundStore(as_clips(sounds, f"the {source}"), options.sample_rate or DEFAULT_MAX_SAMPLE_RATE)
    (coded,), classes = encode_labels(None if labels is None else as_label_array(labels, len(store), f"the {source}", "sounds"))
    return _match_options(Sounds(store, np.arange(len(store)), coded, classes, source), options)


def _match_options(data: Sounds, options: SoundReadOptions) -> Sounds:
    """Return loaded sounds at the requested sample rate and clip length."""
    rate, clips = options.sample_rate or data.sample_rate, data.store.clips
    if rate != data.sample_rate:
        waves = [resample(clip.numpy().astype(np.float32) / MAX_AMPLITUDE, data.sample_rate, rate) for clip in clips]
        clips = torch.from_numpy(quantize_waveform(np.stack(waves)))
    samples = options.clip_length or (clips.shape[1] if options.seconds is None else max(1, round(options.seconds * rate)))
    if clips is data.store.clips and samples == data.clip_length:
        return data
    return replace(data, store=replace(data.store, clips=crop_or_pad(clips, samples).contiguous(), sample_rate=rate))

"""Loading of sounds from a user's data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import UsageError
from nearfar.data.audio.dataset import MAX_AMPLITUDE, Sounds, SoundStore, as_clips, crop_or_pad, quantize_waveform
from nearfar.data.audio.readers import (
    DEFAULT_MAX_SAMPLE_RATE,
    SOUND_EXTENSIONS,
    SoundReadOptions,
    read_sound_files,
    read_sound_folder,
    resample,
)
from nearfar.data.common.arrays import as_label_array, encode_labels
from nearfar.data.common.missing_data import build_missing_data_error
from nearfar.data.samples.tones import make_tones

BUILTIN_SOUNDS = {"tones": make_tones}
"""Built-in datasets by name."""


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
        return match_read_options(spec, options)
    if isinstance(spec, str) and spec in BUILTIN_SOUNDS:
        return match_read_options(BUILTIN_SOUNDS[spec](), options)
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
    return match_read_options(Sounds(store, np.arange(len(store)), coded, classes, source), options)


def match_read_options(data: Sounds, options: SoundReadOptions) -> Sounds:
    """Return loaded sounds at the requested sample rate and clip length."""
    rate, clips = options.sample_rate or data.sample_rate, data.store.clips
    if rate != data.sample_rate:
        waves = [resample(clip.numpy().astype(np.float32) / MAX_AMPLITUDE, data.sample_rate, rate) for clip in clips]
        clips = torch.from_numpy(quantize_waveform(np.stack(waves)))
    samples = options.clip_length or (clips.shape[1] if options.seconds is None else max(1, round(options.seconds * rate)))
    if clips is data.store.clips and samples == data.clip_length:
        return data
    return replace(data, store=replace(data.store, clips=crop_or_pad(clips, samples).contiguous(), sample_rate=rate))

"""Built-in sounds: short tunes of five instruments, in any key, with noise.

The sounds are the same on every machine. Labels are the tunes, and groups are the instruments. A tune must
be recognized by its sequence of notes, not by pitch, tempo or timbre.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from nearfar.core.random_key import RandomKey
from nearfar.data.audio.dataset import Sounds, SoundStore, quantize_waveform

SAMPLE_RATE, SAMPLES_PER_CLIP, CLIPS_PER_TUNE = 8_000, 4_096, 80
TUNES = {
    "rise": (0, 4, 7, 12), "fall": (12, 7, 4, 0), "arch": (0, 7, 12, 7), "dip": (12, 5, 0, 5),
    "trill": (0, 2, 0, 2), "leap": (0, 12, 0, 12), "stay": (0, 0, 0, 0), "turn": (5, 7, 5, 0),
}  # fmt: skip
"""Semitones of each note above the key of the clip."""
INSTRUMENTS = {
    "flute": (1.0, 0.15, 0.05, 0.0, 0.0, 0.0), "reed": (1.0, 0.0, 0.7, 0.0, 0.5, 0.0), "string": (1.0, 0.8, 0.6, 0.45, 0.3, 0.2),
    "horn": (0.5, 1.0, 0.8, 0.4, 0.1, 0.0), "bell": (1.0, 0.1, 0.0, 0.6, 0.0, 0.5),
}  # fmt: skip
"""Strength of each harmonic."""


@lru_cache(maxsize=1)
def make_tones() -> Sounds:
    """Generate the clips, labeled by tune and grouped by instrument."""
    n = CLIPS_PER_TUNE * len(TUNES)
    rows, rng_key = np.arange(n), RandomKey(0)("tones")
    tune, instrument = rows % len(TUNES), rows // len(TUNES) % len(INSTRUMENTS)
    semitones = np.array(list(TUNES.values()))[tune]
    pitch, tempo, level, noise = rng_key("how").uniform(rows, 4).T[..., None].astype(np.float64)
    seconds = np.arange(SAMPLES_PER_CLIP) / SAMPLE_RATE
    beat = np.minimum((seconds * (7 + 3 * tempo)).astype(np.int64), 3)
    base = 220 * 2 ** (pitch + np.take_along_axis(semitones, beat, 1) / 12)
    phase = 2 * np.pi * np.cumsum(base, axis=1) / SAMPLE_RATE
    strength = np.array(list(INSTRUMENTS.values()))[instrument]
    wave = sum(strength[:, h, None] * np.sin((h + 1) * phase) for h in range(strength.shape[1]))
    struck = np.exp(-6 * ((seconds * (7 + 3 * tempo)) % 1))
    wave = wave * struck * (0.05 + 0.15 * level) + (0.002 + 0.01 * noise) * rng_key("noise").normal(rows, SAMPLES_PER_CLIP)
    names = tuple(f"{list(TUNES)[t]} on {list(INSTRUMENTS)[i]}, {r}" for r, t, i in zip(rows, tune, instrument, strict=True))
    store = SoundStore(torch.from_numpy(quantize_waveform(wave)), SAMPLE_RATE, names, tuple(list(INSTRUMENTS)[i] for i in instrument))
    return Sounds(store, rows, tune.astype(np.int64), tuple(TUNES), "tones")

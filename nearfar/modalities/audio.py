"""Audio modality: baselines of spectrogram statistics, spectrograms and players in reports."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor

from nearfar.data.audio.dataset import Sounds
from nearfar.encoders.mel import LogMel, compute_mel_statistics
from nearfar.evaluate import Features
from nearfar.modalities.modality import Modality, encode_view
from nearfar.modalities.sprites import SpriteSheet, build_sprite_sheet
from nearfar.train.model import Model
from nearfar.train.model_data import ViewPair

MAX_SOUND_SECONDS = 2.0
"""Largest number of seconds of a sound in a report. The report file contains the sounds."""


class AudioModality(Modality):
    """Audio clips."""

    def compute_baselines(self, train: Sounds, test: Sounds, views: ViewPair | None) -> dict[str, Features]:
        """Compute mean and deviation of each log-mel band.

        The baseline has no alignment of views, because views need not be clips.
        """
        return {"log-mel statistics": Features(_compute_mel_statistics(train), _compute_mel_statistics(test), baseline=True)}

    def encode_views(self, model: Model, views: ViewPair) -> ViewPair:
        return encode_view(model, views[0]), encode_view(model, views[1])

    def summarize_data(self, train: Sounds) -> str:
        return f"{len(train):,} training sounds of {train.clip_length / train.sample_rate:.2f} s at {train.sample_rate:,} samples a second"

    def build_sample_renderer(self, data: Sounds) -> Callable[[Tensor], Any]:
        def clips(ids: Tensor) -> Any:
            raw = data.read(ids.reshape(-1).numpy())
            found = [
                RenderedSound(picture, encode_wav_uri(sound, data.sample_rate))
                for picture, sound in zip(render_spectrograms(raw, data.sample_rate), raw, strict=True)
            ]
            return found if ids.ndim == 1 else [found[i : i + ids.shape[1]] for i in range(0, len(found), ids.shape[1])]

        return clips

    def render_views(self, model: Model, views: ViewPair) -> tuple[Any, Any]:
        first, second = (
            _normalize_spectrograms(view) if view.ndim == 3 else render_spectrograms(view, model.net.sizes["sample_rate"]) for view in views
        )
        return first, second


@dataclass(frozen=True, eq=False)
class RenderedSound:
    """Sound as a report shows it: a spectrogram and a playable file."""

    picture: Float[Tensor, "1 h w"]
    sound_uri: str

    def build_sheet(self, clips: list[RenderedSound]) -> SoundSheet:
        """Return the sheet of several sounds."""
        return SoundSheet(build_sprite_sheet(torch.stack([clip.picture for clip in clips])), [clip.sound_uri for clip in clips])


@dataclass(frozen=True)
class SoundSheet:
    """Counterpart of `SpriteSheet` for sounds: a spectrogram above a player."""

    sheet: SpriteSheet
    sound_uris: list[str]

    @property
    def style(self) -> str:
        """Return the style attribute of the spectrograms."""
        return self.sheet.style

    def render_cell(self, index: int, title: str) -> str:
        """Return the HTML of one sound."""
        played = (
            f'<audio controls preload="none" style="width:var(--w);height:24px" title="{escape(title)}" src="{self.sound_uris[index]}">'
        )
        return f"<div>{self.sheet.render_cell(index, title)}{played}</audio></div>"


def render_spectrograms(clips: Tensor, sample_rate: int) -> Float[Tensor, "n 1 h w"]:
    """Return log-mel spectrograms in [0, 1] with high frequencies on top."""
    return _normalize_spectrograms(LogMel(sample_rate)(clips.cpu()))


def _normalize_spectrograms(mel: Float[Tensor, "n b f"]) -> Float[Tensor, "n 1 b f"]:
    mel = mel.detach().cpu().float()
    return (mel / mel.amax((1, 2), keepdim=True).clamp_min(1e-6)).flip(1)[:, None]


def encode_wav_uri(clip: Int16[Tensor, " t"], sample_rate: int) -> str:
    """Encode the beginning of a clip as an 8-bit WAV file in a data URI."""
    sound = clip[: round(MAX_SOUND_SECONDS * sample_rate)].float()
    sound = sound / sound.abs().max().clamp_min(1) * 127 + 128
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(sample_rate)
        out.writeframes(sound.round().to(torch.uint8).numpy().tobytes())
    return "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()


def _compute_mel_statistics(data: Sounds) -> Float[Tensor, "n d"]:
    front = LogMel(data.sample_rate)
    parts = [data.read(np.arange(i, min(i + 256, len(data)))) for i in range(0, len(data), 256)]
    return torch.cat([compute_mel_statistics(front(part)) for part in parts])

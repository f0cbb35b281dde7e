"""Sounds: the statistics of their spectrograms are the baseline; a report shows spectrograms, with the sound to be played."""

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
from nearfar.encoders.mel import LogMel, mel_statistics
from nearfar.evaluate import Features
from nearfar.modalities.interface import Kind, Pair, encode
from nearfar.modalities.sprites import Sheet, sprite_sheet
from nearfar.train.model import Trained

LONGEST = 2.0
"""Seconds of a sound that a report carries, at most: its file has to hold them all."""


class AudioKind(Kind):
    def baselines(self, train: Sounds, test: Sounds, views: Pair | None) -> dict[str, Features]:
        """Mean and deviation of each log-mel band. (The alignment of views is left out: they need not be clips.)"""
        return {"log-mel statistics": Features(_statistics(train), _statistics(test), baseline=True)}

    def encode(self, trained: Trained, views: Pair) -> Pair:
        return encode(trained, views[0]), encode(trained, views[1])

    def summary(self, train: Sounds) -> str:
        return f"{len(train):,} training sounds of {train.samples / train.rate:.2f} s at {train.rate:,} samples a second"

    def shown(self, data: Sounds) -> Callable[[Tensor], Any]:
        def clips(ids: Tensor) -> Any:
            raw = data.read(ids.reshape(-1).numpy())
            found = [Clip(picture, wav_uri(sound, data.rate)) for picture, sound in zip(pictures(raw, data.rate), raw, strict=True)]
            return found if ids.ndim == 1 else [found[i : i + ids.shape[1]] for i in range(0, len(found), ids.shape[1])]

        return clips

    def shown_pair(self, trained: Trained, views: Pair) -> tuple[Any, Any]:
        first, second = (_flipped(view) if view.ndim == 3 else pictures(view, trained.net.sizes["rate"]) for view in views)
        return first, second


@dataclass(frozen=True, eq=False)
class Clip:
    """A sound as a report shows it."""

    picture: Float[Tensor, "1 h w"]
    uri: str

    def sheet(self, others: list[Clip]) -> SoundSheet:
        return SoundSheet(sprite_sheet(torch.stack([clip.picture for clip in others])), [clip.uri for clip in others])


@dataclass(frozen=True)
class SoundSheet:
    """The counterpart of `Sheet` for sounds: a picture, and below it something to press."""

    sheet: Sheet
    sounds: list[str]

    @property
    def style(self) -> str:
        return self.sheet.style

    def cell(self, index: int, title: str) -> str:
        played = f'<audio controls preload="none" style="width:var(--w);height:24px" title="{escape(title)}" src="{self.sounds[index]}">'
        return f"<div>{self.sheet.cell(index, title)}{played}</audio></div>"


def pictures(clips: Tensor, rate: int) -> Float[Tensor, "n 1 h w"]:
    """Log-mel spectrograms in [0, 1], high frequencies above."""
    return _flipped(LogMel(rate)(clips.cpu()))


def _flipped(mel: Float[Tensor, "n b f"]) -> Float[Tensor, "n 1 b f"]:
    mel = mel.detach().cpu().float()
    return (mel / mel.amax((1, 2), keepdim=True).clamp_min(1e-6)).flip(1)[:, None]


def wav_uri(clip: Int16[Tensor, " t"], rate: int) -> str:
    """The beginning of a clip as a wav file of 8 bits, inside an address."""
    sound = clip[: round(LONGEST * rate)].float()
    sound = sound / sound.abs().max().clamp_min(1) * 127 + 128
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(rate)
        out.writeframes(sound.round().to(torch.uint8).numpy().tobytes())
    return "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()


def _statistics(data: Sounds) -> Float[Tensor, "n d"]:
    front = LogMel(data.rate)
    parts = [data.read(np.arange(i, min(i + 256, len(data)))) for i in range(0, len(data), 256)]
    return torch.cat([mel_statistics(front(part)) for part in parts])

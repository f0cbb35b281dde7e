"""Audio modality: baselines of spectrogram statistics, spectrograms and players in reports."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor

from nearfar.core import UsageError
from nearfar.core.modality import Modality, SampleMedia, ViewPair
from nearfar.data import Tokenizer
from nearfar.data.audio.dataset import Sounds
from nearfar.data.audio.inputs import AudioInputs
from nearfar.data.audio.readers import SOUND_EXTENSIONS
from nearfar.encoders.mel import LogMel, compute_mel_statistics
from nearfar.evaluate import Features
from nearfar.modalities.encoder_signature import EncoderSignature
from nearfar.modalities.media import encode_png, encode_wav
from nearfar.modalities.sprites import SampleCell, SpriteSheet, build_sprite_sheet
from nearfar.train.model import Model

MAX_SOUND_SECONDS = 2.0
"""Largest number of seconds of a sound in a report. The report file contains the sounds."""
MAX_SHOWN_SAMPLES = 1 << 22
"""Largest number of samples of a sound file in the explorer."""


class AudioModality(Modality):
    """Audio clips."""

    name = "audio"
    plural = "sounds"
    reveals_copies = True
    settings = ("sample_rate", "seconds")
    data_help = "Sounds: 'tones', or a folder of wav, flac or ogg files."
    encoder_help = "Sounds: mel, mel-deep, mel-transformer, wave, wave-512, or hf:NAME-OR-FOLDER, a transformers model. auto: mel."
    candidates = ("nandan-vepa", "cpc-audio")
    bundled = ("tones",)
    extensions = SOUND_EXTENSIONS
    media = SampleMedia(picture=True, sound=True)
    input_types = ("sounds",)

    def build_inputs(self, sizes: Mapping[str, Any] | None = None, tokenizer: Tokenizer | None = None) -> AudioInputs:
        return AudioInputs(sizes)

    def compute_baselines(self, train: Sounds, test: Sounds, views: ViewPair | None) -> dict[str, Features]:
        """Compute mean and deviation of each log-mel band.

        The baseline has no alignment of views, because views need not be clips.
        """
        return {"log-mel statistics": Features(_compute_mel_statistics(train), _compute_mel_statistics(test), baseline=True)}

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

    def read_raw_features(self, model: Model, data: Sounds, ids: np.ndarray) -> Tensor:
        """Return the statistics of each clip's log-mel bands."""
        return compute_mel_statistics(LogMel(data.sample_rate)(data.read(ids)))

    def parse_query(self, model: Model, query: str) -> Any:
        raise UsageError(f"there is no file {query!r}: this index is searched with a sound, with row:N, or with vectors (-)")

    def encode_sample_png(self, part: Sounds, i: int) -> bytes:
        """Return the spectrogram of a clip as a PNG file."""
        return encode_spectrogram_png(part.read(np.array([i]))[0].numpy(), part.sample_rate)

    def encode_sample_wav(self, part: Sounds, i: int) -> bytes:
        return encode_wav(part.read(np.array([i]))[0].numpy(), part.sample_rate)

    def encode_file_png(self, path: str) -> bytes | None:
        found = read_sound_file(path)
        return None if found is None else encode_spectrogram_png(*found)

    def encode_file_wav(self, path: str) -> bytes | None:
        found = read_sound_file(path)
        return None if found is None else encode_wav(*found)

    def build_signatures(self, model: Model) -> dict[str, EncoderSignature]:
        return {"model": build_sound_signature(model.net.sizes)}


def read_sound_file(path: str) -> tuple[np.ndarray, int] | None:
    """Read one channel of a sound file and its sample rate.

    Returns None if the file cannot be read.
    """
    import soundfile

    try:
        wave, rate = soundfile.read(path, dtype="int16", always_2d=True, frames=MAX_SHOWN_SAMPLES)
    except (soundfile.SoundFileError, OSError):
        return None
    return wave[:, 0], rate


def encode_spectrogram_png(clip: np.ndarray, sample_rate: int) -> bytes:
    """Encode the spectrogram of a sound as a PNG file."""
    pictures = render_spectrograms(torch.from_numpy(np.ascontiguousarray(clip))[None], sample_rate)
    return encode_png((pictures[0] * 255).byte().numpy())


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

    def get_cell(self, index: int) -> SampleCell:
        """Return the cell of one sound."""
        return replace(self.sheet.get_cell(index), sound_uri=self.sound_uris[index])


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


def build_sound_signature(sizes: Any) -> EncoderSignature:
    """Return the signature of a sound encoder."""
    samples = sizes["samples"]
    words = {
        "input": "samples",
        "dtype": "int16",
        "shape": ["n", samples],
        "rate": sizes["sample_rate"],
        "channels": "one: the mean of all",
        "length": f"{samples / sizes['sample_rate']:g} s; shorter clips have zeros at their end",
    }
    wave = 8000 * torch.sin(torch.arange(3 * samples).view(3, samples) * torch.tensor([[0.05], [0.2], [0.8]]))
    return EncoderSignature("samples", wave.to(torch.int16), {0: "n"}, None, words)

"""Views of a sound are alike: operations on its spectrogram or on its samples, drawn for each slot.

    op(x, slots, key)        x: spectrograms (n, bands, frames) of log(1 + power), 0 where it is silent; or clips (n, time)

Row i of the result depends on (x[i], slots[i], key) alone; the whole batch is worked on at once, on its own device. Silence stays
silence: what a clip was filled up with is not mistaken for sound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor

from nearfar.core import RandomKey, Rows, Similarity, UsageError
from nearfar.similarity.image_op import Slots, scale_to_range

Spectrograms = Float[Tensor, "n b f"]
Clips = Float[Tensor, "n t"]


class SoundOp(ABC):
    """An operation on spectrograms, or on clips."""

    @abstractmethod
    def __call__(self, x: Tensor, slots: Slots, rng_key: RandomKey) -> Tensor: ...


@dataclass(frozen=True)
class SpectrogramCrop(SoundOp):
    """A random window, stretched to the size of the largest that fits into the clip: time runs faster or slower, pitch and the
    vocal tract go up or down."""

    time: tuple[float, float] = (0.8, 1.2)
    """Length of the window, as a share of the clip's; beyond 1 there is silence around the sound."""
    bands: tuple[float, float] = (0.9, 1.1)
    """Height of the window, as a share of the bands."""

    def __post_init__(self):
        for low, high in (self.time, self.bands):
            if not 0 < low <= high:
                raise UsageError(f"Resize: time and bands are pairs (low, high) with 0 < low <= high, got {self.time} and {self.bands}")

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n b g"]:
        draw = rng_key("window").uniform(slots, 4)
        frames = math.ceil(x.shape[2] * min(1.0, self.time[1]))
        x = interpolate_frames(x, _compute_window_positions(x.shape[2], frames, scale_to_range(*self.time, draw[:, 0]), draw[:, 1]))
        turned = interpolate_frames(
            x.transpose(1, 2), _compute_window_positions(x.shape[1], x.shape[1], scale_to_range(*self.bands, draw[:, 2]), draw[:, 3])
        )
        return turned.transpose(1, 2)


def _compute_window_positions(size: int, points: int, share: Float[Tensor, " n"], place: Float[Tensor, " n"]) -> Float[Tensor, "n points"]:
    """So many positions in a window of `share` of the size; `place` of 0 puts it at the beginning, of 1 at the end."""
    start = place * (1 - share) * (size - 1)
    steps = torch.linspace(0, size - 1, points, device=share.device)
    return start[:, None] + steps * share[:, None]


@dataclass(frozen=True)
class TimeWarp(SoundOp):
    """SpecAugment's: a random moment is moved, what is before and after it is stretched and squeezed to fit."""

    max_share: float = 0.2
    """How far at most, as a share of the clip."""

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        last = x.shape[2] - 1
        if not last:
            return x
        draw = rng_key("warp").uniform(slots, 2)
        moment = scale_to_range(0.3, 0.7, draw[:, :1]) * last
        moved = (moment + scale_to_range(-self.max_share, self.max_share, draw[:, 1:]) * last).clamp(0.05 * last, 0.95 * last)
        at = torch.arange(last + 1, device=x.device)
        before = at * moment / moved
        after = last - (last - at) * (last - moment) / (last - moved)
        return interpolate_frames(x, torch.where(at < moved, before, after))


@dataclass(frozen=True)
class SpectrogramMask(SoundOp):
    """SpecAugment's: `count` stretches of frames, or of bands, are set to the clip's mean."""

    axis: str = "time"
    """time or bands"""
    max_share: float = 0.2
    """Of the axis, at most, for each stretch."""
    count: int = 1

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        size = x.shape[2 if self.axis == "time" else 1]
        draw = rng_key("mask").uniform(slots, self.count, 2)
        width = draw[..., 0] * self.max_share * size
        start = draw[..., 1] * (size - width)
        at = torch.arange(size, device=x.device)[None, None] + 0.5
        hidden = ((at >= start[..., None]) & (at < (start + width)[..., None])).any(1)
        hidden = hidden[:, None, :] if self.axis == "time" else hidden[:, :, None]
        heard = x.amax(1, keepdim=True) > 0
        mean = (x * heard).sum((1, 2), keepdim=True) / (heard.sum((1, 2), keepdim=True) * x.shape[1]).clamp_min(1)
        return torch.where(hidden & heard, mean, x)


@dataclass(frozen=True)
class SpectralTilt(SoundOp):
    """Another microphone, another distance: every power is multiplied by a gain whose decibels are a random line over the bands."""

    max_gain_db: float = 6.0
    """Decibels up or down, at most."""
    max_tilt_db: float = 6.0
    """Decibels more at one end of the bands than in the middle, at most."""

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        draw = rng_key("gain").uniform(slots, 2) * 2 - 1
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device)
        decibels = self.max_gain_db * draw[:, :1] + self.max_tilt_db * draw[:, 1:] * slope
        return torch.log1p(torch.expm1(x) * (10 ** (decibels / 10))[:, :, None])


@dataclass(frozen=True)
class SpectralNoise(SoundOp):
    """Noise of a random power in all bands, where there is sound."""

    max_power: float = 10.0
    """Times the power below which the front end hears nothing."""

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        power = rng_key("power").uniform(slots, 1, 1) * self.max_power
        drawn = power * rng_key("noise").normal(slots, *x.shape[1:]).square()
        return torch.where(x.amax(1, keepdim=True) > 0, torch.log1p(torch.expm1(x) + drawn), x)


@dataclass(frozen=True)
class TimeShift(SoundOp):
    """Clips are moved in time, by a share of their length; what leaves at one end is lost."""

    max_share: float = 0.1

    def __call__(self, x: Clips, slots: Slots, rng_key: RandomKey) -> Clips:
        far = (rng_key("shift").uniform(slots, 1) * 2 - 1) * self.max_share * x.shape[1]
        return _take_samples(x, torch.arange(x.shape[1], device=x.device) - far.round().long())


@dataclass(frozen=True)
class TimeCrop(SoundOp):
    """A random stretch of so large a share of the time, of clips or of spectrograms."""

    share: float = 0.5

    def __call__(self, x: Float[Tensor, "n *b t"], slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n *b s"]:
        size = math.ceil(self.share * x.shape[-1])
        start = (rng_key("window").uniform(slots) * (x.shape[-1] - size + 1)).long()
        at = start[:, None] + torch.arange(size, device=x.device)
        return x.gather(-1, at if x.ndim == 2 else at[:, None].expand(-1, x.shape[1], -1))


@dataclass(frozen=True)
class WhiteNoise(SoundOp):
    """White noise is added to clips where they are not 0."""

    min_snr_db: float = 10.0
    max_snr_db: float = 40.0
    """Decibels of the sound above the noise, at least and at most."""

    def __call__(self, x: Clips, slots: Slots, rng_key: RandomKey) -> Clips:
        above = scale_to_range(self.min_snr_db, self.max_snr_db, rng_key("above").uniform(slots, 1))
        power = x.square().sum(1, keepdim=True) / (x != 0).sum(1, keepdim=True).clamp_min(1)
        noise = rng_key("noise").normal(slots, x.shape[1]) * (power * 10 ** (-above / 10)).sqrt()
        return torch.where(x != 0, x + noise, x)


def interpolate_frames(x: Spectrograms, positions: Float[Tensor, "n g"]) -> Float[Tensor, "n b g"]:
    """Frames at fractional positions, between their neighbours; silence beyond both ends."""
    low = positions.floor()
    share = (positions - low)[:, None]
    first, second = _take_frames(x, low.long()), _take_frames(x, low.long() + 1)
    return first * (1 - share) + second * share


def _take_frames(x: Tensor, at: Int[Tensor, "n g"]) -> Tensor:
    inside = (at >= 0) & (at < x.shape[2])
    index = at.clamp(0, x.shape[2] - 1)[:, None].expand(-1, x.shape[1], -1)
    return x.gather(2, index) * inside[:, None]


def _take_samples(x: Clips, at: Int[Tensor, "n t"]) -> Clips:
    inside = (at >= 0) & (at < x.shape[1])
    return x.gather(1, at.clamp(0, x.shape[1] - 1)) * inside


@dataclass(frozen=True)
class SoundViews(Similarity):
    """`views` of each clip: {"v0": …, "v1": …}, each by operations on its samples, then on its spectrogram.

    `front` makes spectrograms of clips; the encoder's own is handed in. Without one the views are clips. `together`: what happens to
    a clip (to its spectrogram, where no view changes samples) before the views part, so that it is the same for all of them.
    """

    waveform_ops: tuple[SoundOp, ...] = ()
    spectrogram_ops: tuple[SoundOp, ...] = ()
    front_end: Callable[[Tensor], Tensor] | None = None
    num_views: int = 2
    shared_ops: tuple[SoundOp, ...] = ()

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> Int16[Tensor, "n t"]:
        return data.read(rows.ids)

    def view(self, raw: Int16[Tensor, "n t"], rows: Rows, rng_key: RandomKey) -> dict[str, Tensor]:
        slots = torch.as_tensor(rows.slots, device=raw.device)
        clips = raw.float() / 32767
        start = self.front_end(clips) if self.front_end and not self.waveform_ops else clips
        start = _apply_ops(self.shared_ops, start, slots, rng_key("together"))
        return {f"v{i}": self._view(start, slots, rng_key("view", i)) for i in range(self.num_views)}

    def _view(self, x: Tensor, slots: Slots, rng_key: RandomKey) -> Tensor:
        if self.waveform_ops:
            x = _apply_ops(self.waveform_ops, x, slots, rng_key("waves"))
            x = self.front_end(x) if self.front_end else x
        return _apply_ops(self.spectrogram_ops, x, slots, rng_key("spectra"))


def _apply_ops(ops: tuple[SoundOp, ...], x: Tensor, slots: Slots, rng_key: RandomKey) -> Tensor:
    for position, op in enumerate(ops):
        x = op(x, slots, rng_key(position))
    return x


def sound_views(front_end: Callable[[Tensor], Tensor], time_range: tuple[float, float] = (0.7, 1.3), num_views: int = 2) -> SoundViews:
    """Strong views for sounds: another tempo, pitch, microphone and room, with parts hidden."""
    spectra = (
        SpectrogramCrop(time_range, (0.8, 1.2)),
        TimeWarp(0.15),
        SpectralTilt(),
        SpectralNoise(),
        SpectrogramMask("time", 0.2),
        SpectrogramMask("bands", 0.2),
    )
    return SoundViews(spectrogram_ops=spectra, front_end=front_end, num_views=num_views)


def aligned_sound_views(front_end: Callable[[Tensor], Tensor] | None, window_share: float = 1.0) -> SoundViews:
    """Two views of the same stretch of a sound in which every moment stays where it is: another voice, microphone and room.

    `front`: of the encoder; one that reads samples has none, and its views differ in noise alone. `window`: the stretch, as a share of
    the clip.
    """
    together = (TimeCrop(window_share),) if window_share < 1 else ()
    if front_end is None:
        return SoundViews(waveform_ops=(WhiteNoise(),), shared_ops=together)
    spectra = (SpectrogramCrop((1.0, 1.0), (0.8, 1.2)), SpectralTilt(), SpectralNoise())
    return SoundViews(spectrogram_ops=spectra, front_end=front_end, shared_ops=together)

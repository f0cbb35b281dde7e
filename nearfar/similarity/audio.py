"""Views of a sound: random operations on its spectrogram or its waveform, drawn for each slot.

    op(x, slots, rng_key)    x: spectrograms (n, bands, frames) of log(1 + power), 0 in silence;
                             or clips (n, time)

Row i of the result depends only on (x[i], slots[i], rng_key). Operations process the whole batch at once, on
its device. Silence stays silence, so padding is not mistaken for sound.
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
    """Operation on spectrograms or on clips."""

    @abstractmethod
    def __call__(self, x: Tensor, slots: Slots, rng_key: RandomKey) -> Tensor: ...


@dataclass(frozen=True)
class SpectrogramCrop(SoundOp):
    """Random crop of time and bands, stretched to a fixed size.

    Cropping time changes the tempo. Cropping bands changes the pitch and the apparent size of the vocal
    tract. The result has the size of the largest window that fits into the clip.
    """

    time: tuple[float, float] = (0.8, 1.2)
    """Range of the window length as a share of the clip.

    Beyond 1 there is silence around the sound.
    """
    bands: tuple[float, float] = (0.9, 1.1)
    """Range of the window height as a share of the bands."""

    def __post_init__(self):
        for low, high in (self.time, self.bands):
            if not 0 < low <= high:
                raise UsageError(
                    f"SpectrogramCrop: time and bands must be pairs (low, high) with 0 < low <= high, got {self.time} and {self.bands}"
                )

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n b g"]:
        draw = rng_key("window").uniform(slots, 4)
        frames = math.ceil(x.shape[2] * min(1.0, self.time[1]))
        x = interpolate_frames(x, _compute_window_positions(x.shape[2], frames, scale_to_range(*self.time, draw[:, 0]), draw[:, 1]))
        turned = interpolate_frames(
            x.transpose(1, 2), _compute_window_positions(x.shape[1], x.shape[1], scale_to_range(*self.bands, draw[:, 2]), draw[:, 3])
        )
        return turned.transpose(1, 2)


def _compute_window_positions(size: int, points: int, share: Float[Tensor, " n"], place: Float[Tensor, " n"]) -> Float[Tensor, "n points"]:
    """Compute equally spaced positions in a window that covers a share of an axis.

    A `place` of 0 puts the window at the beginning, 1 at the end.
    """
    start = place * (1 - share) * (size - 1)
    steps = torch.linspace(0, size - 1, points, device=share.device)
    return start[:, None] + steps * share[:, None]


@dataclass(frozen=True)
class TimeWarp(SoundOp):
    """Time warp of SpecAugment.

    A random moment moves, and both sides are stretched to fit.
    """

    max_share: float = 0.2
    """Largest shift as a share of the clip."""

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
    """Time or frequency mask of SpecAugment.

    `count` intervals of frames or bands are set to the mean of the clip.
    """

    axis: str = "time"
    """Axis to mask: time or bands."""
    max_share: float = 0.2
    """Largest length of an interval as a share of the axis."""
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
    """Random gain that simulates another microphone or distance.

    The gain in decibels is a random linear function of the band.
    """

    max_gain_db: float = 6.0
    """Largest gain or loss in decibels."""
    max_tilt_db: float = 6.0
    """Largest difference in decibels between the end and the middle of the bands."""

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        draw = rng_key("gain").uniform(slots, 2) * 2 - 1
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device)
        decibels = self.max_gain_db * draw[:, :1] + self.max_tilt_db * draw[:, 1:] * slope
        return torch.log1p(torch.expm1(x) * (10 ** (decibels / 10))[:, :, None])


@dataclass(frozen=True)
class SpectralNoise(SoundOp):
    """Noise of random power in all bands, where there is sound."""

    max_power: float = 10.0
    """Largest noise power, in multiples of the smallest power that the front end detects."""

    def __call__(self, x: Spectrograms, slots: Slots, rng_key: RandomKey) -> Spectrograms:
        power = rng_key("power").uniform(slots, 1, 1) * self.max_power
        drawn = power * rng_key("noise").normal(slots, *x.shape[1:]).square()
        return torch.where(x.amax(1, keepdim=True) > 0, torch.log1p(torch.expm1(x) + drawn), x)


@dataclass(frozen=True)
class TimeShift(SoundOp):
    """Random shift of clips in time, as a share of their length.

    Audio beyond the ends is lost.
    """

    max_share: float = 0.1
    """Largest shift as a share of the clip."""

    def __call__(self, x: Clips, slots: Slots, rng_key: RandomKey) -> Clips:
        far = (rng_key("shift").uniform(slots, 1) * 2 - 1) * self.max_share * x.shape[1]
        return _take_samples(x, torch.arange(x.shape[1], device=x.device) - far.round().long())


@dataclass(frozen=True)
class TimeCrop(SoundOp):
    """Random interval of fixed length, of clips or spectrograms."""

    share: float = 0.5
    """Length of the interval as a share of the clip."""

    def __call__(self, x: Float[Tensor, "n *b t"], slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n *b s"]:
        size = math.ceil(self.share * x.shape[-1])
        start = (rng_key("window").uniform(slots) * (x.shape[-1] - size + 1)).long()
        at = start[:, None] + torch.arange(size, device=x.device)
        return x.gather(-1, at if x.ndim == 2 else at[:, None].expand(-1, x.shape[1], -1))


@dataclass(frozen=True)
class WhiteNoise(SoundOp):
    """White noise at a random signal-to-noise ratio. Silence stays silent."""

    min_snr_db: float = 10.0
    max_snr_db: float = 40.0
    """Largest signal-to-noise ratio in decibels; `min_snr_db` is the smallest."""

    def __call__(self, x: Clips, slots: Slots, rng_key: RandomKey) -> Clips:
        above = scale_to_range(self.min_snr_db, self.max_snr_db, rng_key("above").uniform(slots, 1))
        power = x.square().sum(1, keepdim=True) / (x != 0).sum(1, keepdim=True).clamp_min(1)
        noise = rng_key("noise").normal(slots, x.shape[1]) * (power * 10 ** (-above / 10)).sqrt()
        return torch.where(x != 0, x + noise, x)


def interpolate_frames(x: Spectrograms, positions: Float[Tensor, "n g"]) -> Float[Tensor, "n b g"]:
    """Interpolate spectrograms linearly at fractional frame positions.

    Positions beyond both ends give silence.
    """
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
    """Views of each clip: {"v0": …, "v1": …}.

    Each view applies `waveform_ops`, the front end and then `spectrogram_ops`.
    """

    waveform_ops: tuple[SoundOp, ...] = ()
    spectrogram_ops: tuple[SoundOp, ...] = ()
    front_end: Callable[[Tensor], Tensor] | None = None
    """Function from clips to spectrograms, usually that of the encoder. None: the views are clips."""
    num_views: int = 2
    shared_ops: tuple[SoundOp, ...] = ()
    """Operations that are the same for all views of a clip.

    They apply to the clip, or to its spectrogram if there are no `waveform_ops` but a front end.
    """

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
    """Build strong views: random tempo, pitch, microphone and room, with masked parts.

    Args:
        front_end: function from clips to spectrograms.
        time_range: range of the window length as a share of the clip.
        num_views: number of views.
    """
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
    """Build two views of a sound that are aligned in time.

    Both show the same interval. The views differ in voice, microphone and room.

    Args:
        front_end: front end of the encoder. None: the encoder reads waveforms, and the views differ only in
            noise.
        window_share: length of the interval as a share of the clip.
    """
    together = (TimeCrop(window_share),) if window_share < 1 else ()
    if front_end is None:
        return SoundViews(waveform_ops=(WhiteNoise(),), shared_ops=together)
    spectra = (SpectrogramCrop((1.0, 1.0), (0.8, 1.2)), SpectralTilt(), SpectralNoise())
    return SoundViews(spectrogram_ops=spectra, front_end=front_end, shared_ops=together)

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

from nearfar.core import Key, Rows, Similarity, UsageError
from nearfar.similarity.image_op import between

Spectrograms = Float[Tensor, "n b f"]
Clips = Float[Tensor, "n t"]
Slots = Int[Tensor, " n"]


class SoundOp(ABC):
    """An operation on spectrograms, or on clips."""

    @abstractmethod
    def __call__(self, x: Tensor, slots: Slots, key: Key) -> Tensor: ...


@dataclass(frozen=True)
class Resize(SoundOp):
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

    def __call__(self, x: Spectrograms, slots: Slots, key: Key) -> Float[Tensor, "n b g"]:
        draw = key("window").uniform(slots, 4)
        frames = math.ceil(x.shape[2] * min(1.0, self.time[1]))
        x = interpolated(x, _window(x.shape[2], frames, between(*self.time, draw[:, 0]), draw[:, 1]))
        turned = interpolated(x.transpose(1, 2), _window(x.shape[1], x.shape[1], between(*self.bands, draw[:, 2]), draw[:, 3]))
        return turned.transpose(1, 2)


def _window(size: int, points: int, share: Float[Tensor, " n"], place: Float[Tensor, " n"]) -> Float[Tensor, "n points"]:
    """So many positions in a window of `share` of the size; `place` of 0 puts it at the beginning, of 1 at the end."""
    start = place * (1 - share) * (size - 1)
    steps = torch.linspace(0, size - 1, points, device=share.device)
    return start[:, None] + steps * share[:, None]


@dataclass(frozen=True)
class TimeWarp(SoundOp):
    """SpecAugment's: a random moment is moved, what is before and after it is stretched and squeezed to fit."""

    share: float = 0.2
    """How far at most, as a share of the clip."""

    def __call__(self, x: Spectrograms, slots: Slots, key: Key) -> Spectrograms:
        last = x.shape[2] - 1
        if not last:
            return x
        draw = key("warp").uniform(slots, 2)
        moment = between(0.3, 0.7, draw[:, :1]) * last
        moved = (moment + between(-self.share, self.share, draw[:, 1:]) * last).clamp(0.05 * last, 0.95 * last)
        at = torch.arange(last + 1, device=x.device)
        before = at * moment / moved
        after = last - (last - at) * (last - moment) / (last - moved)
        return interpolated(x, torch.where(at < moved, before, after))


@dataclass(frozen=True)
class Mask(SoundOp):
    """SpecAugment's: `count` stretches of frames, or of bands, are set to the clip's mean."""

    axis: str = "time"
    """time or bands"""
    share: float = 0.2
    """Of the axis, at most, for each stretch."""
    count: int = 1

    def __call__(self, x: Spectrograms, slots: Slots, key: Key) -> Spectrograms:
        size = x.shape[2 if self.axis == "time" else 1]
        draw = key("mask").uniform(slots, self.count, 2)
        width = draw[..., 0] * self.share * size
        start = draw[..., 1] * (size - width)
        at = torch.arange(size, device=x.device)[None, None] + 0.5
        hidden = ((at >= start[..., None]) & (at < (start + width)[..., None])).any(1)
        hidden = hidden[:, None, :] if self.axis == "time" else hidden[:, :, None]
        heard = x.amax(1, keepdim=True) > 0
        mean = (x * heard).sum((1, 2), keepdim=True) / (heard.sum((1, 2), keepdim=True) * x.shape[1]).clamp_min(1)
        return torch.where(hidden & heard, mean, x)


@dataclass(frozen=True)
class Colour(SoundOp):
    """Another microphone, another distance: every power is multiplied by a gain whose decibels are a random line over the bands."""

    gain: float = 6.0
    """Decibels up or down, at most."""
    tilt: float = 6.0
    """Decibels more at one end of the bands than in the middle, at most."""

    def __call__(self, x: Spectrograms, slots: Slots, key: Key) -> Spectrograms:
        draw = key("gain").uniform(slots, 2) * 2 - 1
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device)
        decibels = self.gain * draw[:, :1] + self.tilt * draw[:, 1:] * slope
        return torch.log1p(torch.expm1(x) * (10 ** (decibels / 10))[:, :, None])


@dataclass(frozen=True)
class Hiss(SoundOp):
    """Noise of a random power in all bands, where there is sound."""

    highest: float = 10.0
    """Times the power below which the front end hears nothing."""

    def __call__(self, x: Spectrograms, slots: Slots, key: Key) -> Spectrograms:
        power = key("power").uniform(slots, 1, 1) * self.highest
        drawn = power * key("noise").normal(slots, *x.shape[1:]).square()
        return torch.where(x.amax(1, keepdim=True) > 0, torch.log1p(torch.expm1(x) + drawn), x)


@dataclass(frozen=True)
class Shift(SoundOp):
    """Clips are moved in time, by a share of their length; what leaves at one end is lost."""

    share: float = 0.1

    def __call__(self, x: Clips, slots: Slots, key: Key) -> Clips:
        far = (key("shift").uniform(slots, 1) * 2 - 1) * self.share * x.shape[1]
        return _taken(x, torch.arange(x.shape[1], device=x.device) - far.round().long())


@dataclass(frozen=True)
class Window(SoundOp):
    """A random stretch of so large a share of the time, of clips or of spectrograms."""

    share: float = 0.5

    def __call__(self, x: Float[Tensor, "n *b t"], slots: Slots, key: Key) -> Float[Tensor, "n *b s"]:
        size = math.ceil(self.share * x.shape[-1])
        start = (key("window").uniform(slots) * (x.shape[-1] - size + 1)).long()
        at = start[:, None] + torch.arange(size, device=x.device)
        return x.gather(-1, at if x.ndim == 2 else at[:, None].expand(-1, x.shape[1], -1))


@dataclass(frozen=True)
class Noise(SoundOp):
    """White noise is added to clips where they are not 0."""

    quietest: float = 10.0
    loudest: float = 40.0
    """Decibels of the sound above the noise, at least and at most."""

    def __call__(self, x: Clips, slots: Slots, key: Key) -> Clips:
        above = between(self.quietest, self.loudest, key("above").uniform(slots, 1))
        power = x.square().sum(1, keepdim=True) / (x != 0).sum(1, keepdim=True).clamp_min(1)
        noise = key("noise").normal(slots, x.shape[1]) * (power * 10 ** (-above / 10)).sqrt()
        return torch.where(x != 0, x + noise, x)


def interpolated(x: Spectrograms, at: Float[Tensor, "n g"]) -> Float[Tensor, "n b g"]:
    """Frames at fractional positions, between their neighbours; silence beyond both ends."""
    low = at.floor()
    share = (at - low)[:, None]
    first, second = _frames(x, low.long()), _frames(x, low.long() + 1)
    return first * (1 - share) + second * share


def _frames(x: Tensor, at: Int[Tensor, "n g"]) -> Tensor:
    inside = (at >= 0) & (at < x.shape[2])
    index = at.clamp(0, x.shape[2] - 1)[:, None].expand(-1, x.shape[1], -1)
    return x.gather(2, index) * inside[:, None]


def _taken(x: Clips, at: Int[Tensor, "n t"]) -> Clips:
    inside = (at >= 0) & (at < x.shape[1])
    return x.gather(1, at.clamp(0, x.shape[1] - 1)) * inside


@dataclass(frozen=True)
class SoundViews(Similarity):
    """`views` of each clip: {"v0": …, "v1": …}, each by operations on its samples, then on its spectrogram.

    `front` makes spectrograms of clips; the encoder's own is handed in. Without one the views are clips. `together`: what happens to
    a clip (to its spectrogram, where no view changes samples) before the views part, so that it is the same for all of them.
    """

    waves: tuple[SoundOp, ...] = ()
    spectra: tuple[SoundOp, ...] = ()
    front: Callable[[Tensor], Tensor] | None = None
    views: int = 2
    together: tuple[SoundOp, ...] = ()

    def read(self, data: Any, rows: Rows, key: Key) -> Int16[Tensor, "n t"]:
        return data.read(rows.ids)

    def view(self, raw: Int16[Tensor, "n t"], rows: Rows, key: Key) -> dict[str, Tensor]:
        slots = torch.as_tensor(rows.slots, device=raw.device)
        clips = raw.float() / 32767
        start = self.front(clips) if self.front and not self.waves else clips
        start = _in_turn(self.together, start, slots, key("together"))
        return {f"v{i}": self._view(start, slots, key("view", i)) for i in range(self.views)}

    def _view(self, x: Tensor, slots: Slots, key: Key) -> Tensor:
        if self.waves:
            x = _in_turn(self.waves, x, slots, key("waves"))
            x = self.front(x) if self.front else x
        return _in_turn(self.spectra, x, slots, key("spectra"))


def _in_turn(ops: tuple[SoundOp, ...], x: Tensor, slots: Slots, key: Key) -> Tensor:
    for position, op in enumerate(ops):
        x = op(x, slots, key(position))
    return x


def sound_views(front: Callable[[Tensor], Tensor], time: tuple[float, float] = (0.7, 1.3), views: int = 2) -> SoundViews:
    """Strong views for sounds: another tempo, pitch, microphone and room, with parts hidden."""
    spectra = (Resize(time, (0.8, 1.2)), TimeWarp(0.15), Colour(), Hiss(), Mask("time", 0.2), Mask("bands", 0.2))
    return SoundViews(spectra=spectra, front=front, views=views)


def timed_views(front: Callable[[Tensor], Tensor] | None, window: float = 1.0) -> SoundViews:
    """Two views of the same stretch of a sound in which every moment stays where it is: another voice, microphone and room.

    `front`: of the encoder; one that reads samples has none, and its views differ in noise alone. `window`: the stretch, as a share of
    the clip.
    """
    together = (Window(window),) if window < 1 else ()
    if front is None:
        return SoundViews(waves=(Noise(),), together=together)
    spectra = (Resize((1.0, 1.0), (0.8, 1.2)), Colour(), Hiss())
    return SoundViews(spectra=spectra, front=front, together=together)

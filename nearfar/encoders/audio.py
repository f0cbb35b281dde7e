"""Encoders of sounds: local features along time, `states`, and one vector for a clip, their mean and deviation.

All take clips (n, time), int16 or floats; those with a log-mel front end also spectrograms (n, bands, frames), which views may have
changed. Silence, with which short clips are filled up, does not count.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.encoders.family import Architecture, Build, Family
from nearfar.encoders.mel import LogMel, loudness_one, sounding
from nearfar.encoders.pretrained import model_of

Layers = Sequence[tuple[int, int]]
"""(kernel, stride) of each convolution."""

FRAMES: Layers = ((5, 2), (3, 1), (3, 1))
"""20 ms apart, each from 150 ms of sound: for methods that predict one from others."""
DEEP: Layers = ((5, 2), (3, 1), (3, 2), (3, 1), (3, 1))
"""40 ms apart, each from 350 ms."""
CPC: Layers = ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2))
"""As in CPC's and (nearly) in wav2vec's paper."""
STEP = math.prod(stride for _, stride in CPC)
"""How many samples they are apart."""


class FrameNorm(nn.LayerNorm):
    """Each frame by itself: statistics over time would tell the past of the future."""

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n c t"]:  # type: ignore[override]
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def convolutions(inward: int, width: int, layers: Layers) -> nn.Sequential:
    """Convolution, norm, ReLU for each layer; the length is divided by the strides and otherwise kept."""
    parts: list[nn.Module] = []
    for kernel, stride in layers:
        parts += [nn.Conv1d(inward, width, kernel, stride, padding=(kernel - 1) // 2), FrameNorm(width), nn.ReLU(inplace=True)]
        inward = width
    return nn.Sequential(*parts)


class FrameEncoder(nn.Module):
    """What encoders of sounds share: a clip's vector is made from its frames."""

    width: int
    """Of a frame."""

    @property
    def dim(self) -> int:
        """Of a clip."""
        return 2 * self.width

    @abstractmethod
    def states(self, x: Tensor) -> Float[Tensor, "n f w"]: ...

    @abstractmethod
    def heard(self, x: Tensor, frames: int) -> Bool[Tensor, "n frames"]:
        """Which of the frames of `states` are not silent; a clip that is nothing but silence has its first."""

    def forward(self, x: Tensor) -> Float[Tensor, "n d"]:
        states = self.states(x)
        return pooled(states, self.heard(x, states.shape[1]))


def pooled(states: Float[Tensor, "n f w"], heard: Bool[Tensor, "n f"]) -> Float[Tensor, "n two_w"]:
    """The mean and the standard deviation of the frames that count."""
    counts = heard[:, :, None].to(states.dtype)
    total = counts.sum(1).clamp_min(1)
    mean = (states * counts).sum(1) / total
    variance = ((states - mean[:, None]).square() * counts).sum(1) / total
    return torch.cat([mean, (variance + 1e-5).sqrt()], 1)


def spread_over(heard: Bool[Tensor, "n t"], frames: int) -> Bool[Tensor, "n frames"]:
    """The same for fewer, longer frames: heard where any of their parts is. The first always counts: nothing is divided by 0."""
    places = torch.arange(frames, device=heard.device)
    first, last = places * heard.shape[1] // frames, -(-(places + 1) * heard.shape[1] // frames)
    before = F.pad(heard.cumsum(1), (1, 0))
    return (before[:, last] > before[:, first]) | (places == 0)


class MelEncoder(FrameEncoder):
    """Convolutions along time over log-mel bands."""

    def __init__(self, rate: int, width: int = 128, layers: Layers = FRAMES):
        super().__init__()
        self.front, self.width = LogMel(rate), width
        self.body = convolutions(self.front.bands, width, layers)

    def spectrogram(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n b f"]:
        return x if x.ndim == 3 else self.front(x)

    def states(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        return self.body(self.spectrogram(x)).transpose(1, 2)

    def heard(self, x: Shaped[Tensor, "n ..."], frames: int) -> Bool[Tensor, "n frames"]:
        return spread_over(sounding(self.spectrogram(x)), frames)

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return super().forward(self.spectrogram(x))


class MelTransformer(MelEncoder):
    """A transformer over the frames of a `MelEncoder`: every frame sees all of the clip."""

    def __init__(self, rate: int, width: int = 128, depth: int = 2):
        super().__init__(rate, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.mixer = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)

    def states(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        mel = self.spectrogram(x)
        local = super().states(mel)
        return self.mixer(local, src_key_padding_mask=~self.heard(mel, local.shape[1]))


class WaveEncoder(FrameEncoder):
    """Strided convolutions on the samples themselves."""

    def __init__(self, width: int = 128, layers: Layers = CPC):
        super().__init__()
        self.width = width
        self.body = convolutions(1, width, layers)

    def states(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n f w"]:
        enough = F.pad(loudness_one(x), (0, max(0, STEP - x.shape[1])))  # for one frame
        return self.body(enough[:, None]).transpose(1, 2)

    def heard(self, x: Shaped[Tensor, "n t"], frames: int) -> Bool[Tensor, "n frames"]:
        return spread_over(x != 0, frames)


class HuggingFaceSound(WaveEncoder):
    """A transformers model of speech (wav2vec 2.0, HuBERT, …) from a local folder: its last hidden states. It expects 16 kHz."""

    def __init__(self, name: str, architecture: Architecture | None = None):
        super().__init__(1, ())
        self.model = model_of(name, architecture)
        if self.model.main_input_name != "input_values":
            raise UsageError(
                f"--encoder hf:{name}: {type(self.model).__name__} takes {self.model.main_input_name}, not the samples of a sound"
            )
        self.model.config.apply_spec_augment = False  # its masks are drawn without a key; views are the similarity's to make
        self.width = int(self.model.config.hidden_size)

    def states(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n f w"]:
        return self.model(loudness_one(x)).last_hidden_state


AUDIO_ENCODERS: dict[str, Build] = {
    "mel": lambda sizes: MelEncoder(sizes["rate"]),
    "mel-deep": lambda sizes: MelEncoder(sizes["rate"], layers=DEEP),
    "mel-transformer": lambda sizes: MelTransformer(sizes["rate"]),
    "wave": lambda sizes: WaveEncoder(),
    "wave-512": lambda sizes: WaveEncoder(512),
}
SOUNDS = Family(
    of="sounds",
    mark="rate",
    encoders=AUDIO_ENCODERS,
    auto=lambda sizes: "mel",
    pretrained=lambda name, sizes, architecture: HuggingFaceSound(name, architecture),
)

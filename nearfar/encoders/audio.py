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
from nearfar.encoders.family import Architecture, EncoderBuilder, EncoderFamily
from nearfar.encoders.mel import LogMel, find_audible_frames, normalize_loudness
from nearfar.encoders.pretrained import load_transformers_model

ConvLayers = Sequence[tuple[int, int]]
"""(kernel, stride) of each convolution."""

MEL_LAYERS: ConvLayers = ((5, 2), (3, 1), (3, 1))
"""20 ms apart, each from 150 ms of sound: for methods that predict one from others."""
DEEP_MEL_LAYERS: ConvLayers = ((5, 2), (3, 1), (3, 2), (3, 1), (3, 1))
"""40 ms apart, each from 350 ms."""
CPC_LAYERS: ConvLayers = ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2))
"""As in CPC's and (nearly) in wav2vec's paper."""
CPC_FRAME_STRIDE = math.prod(stride for _, stride in CPC_LAYERS)
"""How many samples they are apart."""


class FrameNorm(nn.LayerNorm):
    """Each frame by itself: statistics over time would tell the past of the future."""

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n c t"]:  # type: ignore[override]
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def build_convolutions(in_channels: int, width: int, layers: ConvLayers) -> nn.Sequential:
    """Convolution, norm, ReLU for each layer; the length is divided by the strides and otherwise kept."""
    parts: list[nn.Module] = []
    for kernel, stride in layers:
        parts += [nn.Conv1d(in_channels, width, kernel, stride, padding=(kernel - 1) // 2), FrameNorm(width), nn.ReLU(inplace=True)]
        in_channels = width
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
    def encode_frames(self, x: Tensor) -> Float[Tensor, "n f w"]: ...

    @abstractmethod
    def compute_frame_mask(self, x: Tensor, num_frames: int) -> Bool[Tensor, "n frames"]:
        """Which of the frames of `states` are not silent; a clip that is nothing but silence has its first."""

    def forward(self, x: Tensor) -> Float[Tensor, "n d"]:
        states = self.encode_frames(x)
        return pool_mean_std(states, self.compute_frame_mask(x, states.shape[1]))


def pool_mean_std(states: Float[Tensor, "n f w"], mask: Bool[Tensor, "n f"]) -> Float[Tensor, "n two_w"]:
    """The mean and the standard deviation of the frames that count."""
    counts = mask[:, :, None].to(states.dtype)
    total = counts.sum(1).clamp_min(1)
    mean = (states * counts).sum(1) / total
    variance = ((states - mean[:, None]).square() * counts).sum(1) / total
    return torch.cat([mean, (variance + 1e-5).sqrt()], 1)


def downsample_mask(mask: Bool[Tensor, "n t"], num_frames: int) -> Bool[Tensor, "n frames"]:
    """The same for fewer, longer frames: heard where any of their parts is. The first always counts: nothing is divided by 0."""
    places = torch.arange(num_frames, device=mask.device)
    first, last = places * mask.shape[1] // num_frames, -(-(places + 1) * mask.shape[1] // num_frames)
    before = F.pad(mask.cumsum(1), (1, 0))
    return (before[:, last] > before[:, first]) | (places == 0)


class MelEncoder(FrameEncoder):
    """Convolutions along time over log-mel bands."""

    def __init__(self, sample_rate: int, width: int = 128, layers: ConvLayers = MEL_LAYERS):
        super().__init__()
        self.front, self.width = LogMel(sample_rate), width
        self.body = build_convolutions(self.front.bands, width, layers)

    def compute_spectrogram(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n b f"]:
        return x if x.ndim == 3 else self.front(x)

    def encode_frames(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        return self.body(self.compute_spectrogram(x)).transpose(1, 2)

    def compute_frame_mask(self, x: Shaped[Tensor, "n ..."], num_frames: int) -> Bool[Tensor, "n frames"]:
        return downsample_mask(find_audible_frames(self.compute_spectrogram(x)), num_frames)

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return super().forward(self.compute_spectrogram(x))


class MelTransformer(MelEncoder):
    """A transformer over the frames of a `MelEncoder`: every frame sees all of the clip."""

    def __init__(self, sample_rate: int, width: int = 128, depth: int = 2):
        super().__init__(sample_rate, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.mixer = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)

    def encode_frames(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        mel = self.compute_spectrogram(x)
        local = super().encode_frames(mel)
        return self.mixer(local, src_key_padding_mask=~self.compute_frame_mask(mel, local.shape[1]))


class WaveEncoder(FrameEncoder):
    """Strided convolutions on the samples themselves."""

    def __init__(self, width: int = 128, layers: ConvLayers = CPC_LAYERS):
        super().__init__()
        self.width = width
        self.body = build_convolutions(1, width, layers)

    def encode_frames(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n f w"]:
        enough = F.pad(normalize_loudness(x), (0, max(0, CPC_FRAME_STRIDE - x.shape[1])))  # for one frame
        return self.body(enough[:, None]).transpose(1, 2)

    def compute_frame_mask(self, x: Shaped[Tensor, "n t"], num_frames: int) -> Bool[Tensor, "n frames"]:
        return downsample_mask(x != 0, num_frames)


class HuggingFaceAudio(WaveEncoder):
    """A transformers model of speech (wav2vec 2.0, HuBERT, …) from a local folder: its last hidden states. It expects 16 kHz."""

    def __init__(self, name: str, architecture: Architecture | None = None):
        super().__init__(1, ())
        self.model = load_transformers_model(name, architecture)
        if self.model.main_input_name != "input_values":
            raise UsageError(
                f"--encoder hf:{name}: {type(self.model).__name__} takes {self.model.main_input_name}, not the samples of a sound"
            )
        self.model.config.apply_spec_augment = False  # its masks are drawn without a key; views are the similarity's to make
        self.width = int(self.model.config.hidden_size)

    def encode_frames(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n f w"]:
        return self.model(normalize_loudness(x)).last_hidden_state


AUDIO_ENCODERS: dict[str, EncoderBuilder] = {
    "mel": lambda sizes: MelEncoder(sizes["sample_rate"]),
    "mel-deep": lambda sizes: MelEncoder(sizes["sample_rate"], layers=DEEP_MEL_LAYERS),
    "mel-transformer": lambda sizes: MelTransformer(sizes["sample_rate"]),
    "wave": lambda sizes: WaveEncoder(),
    "wave-512": lambda sizes: WaveEncoder(512),
}
AUDIO_FAMILY = EncoderFamily(
    modality_name="sounds",
    size_field="sample_rate",
    builders=AUDIO_ENCODERS,
    choose_default=lambda sizes: "mel",
    build_pretrained=lambda name, sizes, architecture: HuggingFaceAudio(name, architecture),
)

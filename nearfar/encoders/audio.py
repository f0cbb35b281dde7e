"""Audio encoders: frame features along time, and one vector for each clip.

The vector of a clip is the mean and the standard deviation of its frames. All encoders take clips (n, time),
int16 or floats. Encoders with a log-mel front end also take spectrograms (n, bands, frames), which views may
have changed. Short clips are padded with silence, and silent frames do not count.
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
"""Kernel size and stride of each convolution."""

MEL_LAYERS: ConvLayers = ((5, 2), (3, 1), (3, 1))
"""Frames 20 ms apart, each from 150 ms of sound. For methods that predict frames from other frames."""
DEEP_MEL_LAYERS: ConvLayers = ((5, 2), (3, 1), (3, 2), (3, 1), (3, 1))
"""Frames 40 ms apart, each computed from 350 ms of sound."""
CPC_LAYERS: ConvLayers = ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2))
"""Layers of the CPC paper. The wav2vec paper uses nearly the same."""
CPC_FRAME_STRIDE = math.prod(stride for _, stride in CPC_LAYERS)
"""Distance of two frames in audio samples."""


class FrameNorm(nn.LayerNorm):
    """Layer norm of each frame alone.

    Statistics over time would leak information from future frames to past ones.
    """

    def forward(self, x: Float[Tensor, "n c t"]) -> Float[Tensor, "n c t"]:  # type: ignore[override]
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def build_convolutions(in_channels: int, width: int, layers: ConvLayers) -> nn.Sequential:
    """Build convolution, norm and ReLU for each layer.

    The length is divided by the strides and is otherwise kept.
    """
    parts: list[nn.Module] = []
    for kernel, stride in layers:
        parts += [nn.Conv1d(in_channels, width, kernel, stride, padding=(kernel - 1) // 2), FrameNorm(width), nn.ReLU(inplace=True)]
        in_channels = width
    return nn.Sequential(*parts)


class FrameEncoder(nn.Module):
    """Base class of audio encoders: the vector of a clip is pooled from its frames.

    Subclasses implement `encode_frames`, which maps clips to frames (n, frames, width), and
    `compute_frame_mask`.
    """

    width: int
    """Width of a frame."""

    @property
    def dim(self) -> int:
        """Return the width of a clip's vector."""
        return 2 * self.width

    @abstractmethod
    def encode_frames(self, x: Tensor) -> Float[Tensor, "n f w"]: ...

    @abstractmethod
    def compute_frame_mask(self, x: Tensor, num_frames: int) -> Bool[Tensor, "n frames"]:
        """Return True for each frame that is not silent.

        In a clip of silence only, the first frame is True.
        """

    def forward(self, x: Tensor) -> Float[Tensor, "n d"]:
        states = self.encode_frames(x)
        return pool_mean_std(states, self.compute_frame_mask(x, states.shape[1]))


def pool_mean_std(states: Float[Tensor, "n f w"], mask: Bool[Tensor, "n f"]) -> Float[Tensor, "n two_w"]:
    """Return the mean and the standard deviation of the frames where `mask` is True."""
    counts = mask[:, :, None].to(states.dtype)
    total = counts.sum(1).clamp_min(1)
    mean = (states * counts).sum(1) / total
    variance = ((states - mean[:, None]).square() * counts).sum(1) / total
    return torch.cat([mean, (variance + 1e-5).sqrt()], 1)


def downsample_mask(mask: Bool[Tensor, "n t"], num_frames: int) -> Bool[Tensor, "n frames"]:
    """Convert a mask to fewer, longer frames.

    A frame is True if any of its parts is True. The first frame is always True, so that pooling never divides
    by 0.
    """
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
        """Return the log-mel spectrogram of clips. Spectrograms are returned unchanged."""
        return x if x.ndim == 3 else self.front(x)

    def encode_frames(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        return self.body(self.compute_spectrogram(x)).transpose(1, 2)

    def compute_frame_mask(self, x: Shaped[Tensor, "n ..."], num_frames: int) -> Bool[Tensor, "n frames"]:
        return downsample_mask(find_audible_frames(self.compute_spectrogram(x)), num_frames)

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return super().forward(self.compute_spectrogram(x))


class MelTransformer(MelEncoder):
    """Transformer over the frames of a `MelEncoder`. Each frame attends to all frames of its clip."""

    def __init__(self, sample_rate: int, width: int = 128, depth: int = 2):
        super().__init__(sample_rate, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.mixer = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)

    def encode_frames(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n f w"]:
        mel = self.compute_spectrogram(x)
        local = super().encode_frames(mel)
        return self.mixer(local, src_key_padding_mask=~self.compute_frame_mask(mel, local.shape[1]))


class WaveEncoder(FrameEncoder):
    """Strided convolutions on the raw audio samples."""

    def __init__(self, width: int = 128, layers: ConvLayers = CPC_LAYERS):
        super().__init__()
        self.width = width
        self.body = build_convolutions(1, width, layers)

    def encode_frames(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n f w"]:
        # Enough samples for one frame.
        enough = F.pad(normalize_loudness(x), (0, max(0, CPC_FRAME_STRIDE - x.shape[1])))
        return self.body(enough[:, None]).transpose(1, 2)

    def compute_frame_mask(self, x: Shaped[Tensor, "n t"], num_frames: int) -> Bool[Tensor, "n frames"]:
        return downsample_mask(x != 0, num_frames)


class HuggingFaceAudio(WaveEncoder):
    """Speech model of transformers (wav2vec 2.0, HuBERT, …) from a local folder.

    The frames are its last hidden states. The model expects 16 kHz.
    """

    def __init__(self, name: str, architecture: Architecture | None = None):
        super().__init__(1, ())
        self.model = load_transformers_model(name, architecture)
        if self.model.main_input_name != "input_values":
            raise UsageError(f"--encoder hf:{name}: {type(self.model).__name__} takes {self.model.main_input_name}, not audio samples")
        # The model's own masks are drawn without a random key. Views are generated by the similarity.
        self.model.config.apply_spec_augment = False
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

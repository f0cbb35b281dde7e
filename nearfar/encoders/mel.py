r"""Log-mel spectrograms: the power of a sound over time, in frequency bands that match human hearing.

    m = LogMel(sample_rate=8000);  m(x)        (n, time) -> (n, bands, frames)

Each clip is first scaled to loudness 1: the root mean square of its samples that are not 0. A frame is 25 ms
long, and frames begin 10 ms apart. With the power \(P_f\) of a frame at frequency f and triangles \(T_b\)
that are equally spaced on the mel scale,

\[ m_b = \log\Bigl(1 + \frac{1}{\epsilon} \sum_f T_b(f)\, P_f\Bigr) \]

Silence is exactly 0 in all bands. Sound 30 dB below the mean power of white noise (eps = 0.001) is close to
0. This removes the hiss that distinguishes one microphone from another.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

WINDOW_SECONDS, HOP_SECONDS = 0.025, 0.010
"""Length of a frame and distance between the beginnings of frames, in seconds."""
POWER_FLOOR = 1e-3


class LogMel(nn.Module):
    """Log-mel front end of audio encoders.

    It is a layer, so it is saved with the weights.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, sample_rate: int, bands: int = 40):
        super().__init__()
        length = max(2, round(WINDOW_SECONDS * sample_rate))
        self.hop, self.bands = max(1, round(HOP_SECONDS * sample_rate)), bands
        self.fft_size = 1 << (length - 1).bit_length()
        hann = torch.hann_window(length, periodic=False)
        # With this norm, white noise of loudness 1 has mean power 1 at every frequency.
        self.register_buffer("window", hann / hann.norm())
        self.register_buffer("filters", build_mel_filters(sample_rate, self.fft_size, bands))

    def forward(self, x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n b f"]:
        x = F.pad(normalize_loudness(x), (0, max(0, len(self.window) - x.shape[1])))
        frames = x.unfold(1, len(self.window), self.hop) * self.window
        power = torch.fft.rfft(frames, self.fft_size).abs().square()
        return torch.log1p((power @ self.filters) / POWER_FLOOR).transpose(1, 2)


def normalize_loudness(x: Shaped[Tensor, "n t"]) -> Float[Tensor, "n t"]:
    """Scale clips to loudness 1 and convert them to floats.

    The root mean square of the samples that are not 0 becomes 1. Silence stays silence.
    """
    x = x.float() / 32767 if not x.is_floating_point() else x.float()
    heard = (x != 0).sum(1, keepdim=True)
    return x / (x.square().sum(1, keepdim=True) / heard.clamp_min(1)).sqrt().clamp_min(1e-6)


def build_mel_filters(sample_rate: int, fft_size: int, bands: int) -> Float[Tensor, "k b"]:
    """Build triangles of area 1 between neighboring mels.

    The mel scale is O'Shaughnessy's, 2595 log10(1 + f / 700). A triangle too narrow to hold a frequency takes
    the nearest one.

    Args:
        sample_rate: samples per second.
        fft_size: number of points of the Fourier transform.
        bands: number of triangles.

    Returns:
        The weight of each of the fft_size // 2 + 1 frequencies in each band, (fft_size // 2 + 1, bands).
    """
    top = 2595 * torch.log10(torch.tensor(1 + sample_rate / 2 / 700, dtype=torch.float64))
    edges = 700 * (10 ** (torch.linspace(0, 1, bands + 2, dtype=torch.float64) * top / 2595) - 1)
    frequency = torch.arange(fft_size // 2 + 1, dtype=torch.float64)[:, None] * sample_rate / fft_size
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    weight = torch.minimum((frequency - low) / (middle - low), (high - frequency) / (high - middle)).clamp_min(0)
    nearest = F.one_hot((frequency - middle).abs().argmin(0), len(frequency)).T
    weight = torch.where(weight.sum(0) > 0, weight, nearest)
    return (weight / weight.sum(0)).float()


def compute_mel_statistics(mel: Float[Tensor, "n b f"]) -> Float[Tensor, "n two_b"]:
    """Return the mean and the standard deviation of each band over audible frames.

    Silent frames do not count. The statistics do not depend on the order in time.
    """
    heard = find_audible_frames(mel)[:, None]
    count = heard.sum(2).clamp_min(1)
    mean = (mel * heard).sum(2) / count
    variance = ((mel - mean[:, :, None]).square() * heard).sum(2) / count
    return torch.cat([mean, variance.sqrt()], 1)


def find_audible_frames(mel: Float[Tensor, "n b f"]) -> Bool[Tensor, "n f"]:
    """Return True for each frame that is not silent."""
    return mel.amax(1) > 0

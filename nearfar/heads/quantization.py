"""Quantization with gradients: one entry from each of several small codebooks."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import RandomKey

INITIAL_LOGIT_STD = 3.0
"""Standard deviation of the initial logits. The noise has 1.3, so codes carry information about the
frames from the first step on."""
FEATURE_STD_FLOOR = 0.1
"""Floor of a feature's standard deviation. Features that deviate less count less. Otherwise a feature
that is rarely active would dominate all others when it is."""
MOVING_AVERAGE_STEPS = 10
"""Approximate number of steps in the moving averages of the frames' mean and deviation."""


class GumbelQuantizer(nn.Module):
    r"""Quantizer that picks one entry of each of `num_codebooks` codebooks.

    For each codebook g it picks the entry of the largest \(l_{gv} + n_v\), with Gumbel noise
    \(n = -\log(-\log u)\). The entries are concatenated and mapped linearly. The gradient is that of

    \[ p_{gv} = \frac{\exp((l_{gv} + n_v)/\tau)}{\sum_k \exp((l_{gk} + n_k)/\tau)} \]

    The logits l are linear in frames that are first standardized, feature by feature. Without this, the parts
    that all frames share would give all frames the same code. The mean and the deviation are those of the
    previous steps. `update_statistics` moves them. The temperature is a buffer, too. `anneal_temperature`
    sets it. Call both methods in `Recipe.update`. Without a random key there is no noise.

    References: Jang, Gu & Poole, Categorical Reparameterization with Gumbel-Softmax, arXiv:1611.01144;
    Baevski et al., vq-wav2vec, arXiv:1910.05453.
    """

    temperature: Tensor
    mean: Tensor
    square: Tensor
    followed: Tensor

    def __init__(
        self,
        width: int,
        dim: int,
        num_codebooks: int = 2,
        codebook_size: int = 64,
        max_temperature: float = 2.0,
        min_temperature: float = 0.5,
    ):
        super().__init__()
        self.max_temperature, self.min_temperature = max_temperature, min_temperature
        self.logits = nn.Sequential(
            nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, num_codebooks * codebook_size, bias=False)
        )
        nn.init.normal_(self.logits[1].weight, std=INITIAL_LOGIT_STD / width**0.5)  # type: ignore[arg-type]
        self.book = nn.Parameter(torch.empty(num_codebooks, codebook_size, dim).uniform_(-1, 1))
        self.out = nn.Linear(num_codebooks * dim, dim)
        self.register_buffer("temperature", torch.tensor(max_temperature))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("square", torch.ones(width))
        self.register_buffer("followed", torch.tensor(0.0))

    def forward(
        self, z: Float[Tensor, "n t w"], slots: Int[Tensor, " n"] | None = None, rng_key: RandomKey | None = None
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n t g v"]]:
        """Quantize frames.

        Args:
            z: frames, (n, t, w).
            slots: slots of the samples, (n,). The noise of a sample depends on its slot.
            rng_key: random key of the noise. None means no noise.

        Returns:
            The quantized frames (n, t, dim), and the probability of each code without noise
            (n, t, num_codebooks, codebook_size).
        """
        groups, codes, _ = self.book.shape
        deviation = (self.square - self.mean.square()).clamp_min(0).add(FEATURE_STD_FLOOR**2).sqrt()
        logits = self.logits((z - self.mean) / deviation).unflatten(2, (groups, codes))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        noisy = logits
        if rng_key is not None and slots is not None:
            u = rng_key("gumbel").uniform(slots, z.shape[1], groups, codes)
            # `u` is a multiple of 2^-24 below 1; only log 0 fails.
            noisy = logits - (-u.clamp_min(2.0**-25).log()).log()
        soft = (noisy / self.temperature).softmax(3)
        hard = F.one_hot(noisy.argmax(3), codes).to(soft.dtype)
        picked = torch.einsum("ntgv,gvd->ntgd", hard - soft.detach() + soft, self.book)
        return self.out(picked.flatten(2)), logits.softmax(3)

    @torch.no_grad()
    def anneal_temperature(self, progress: float) -> None:
        """Decrease the temperature by equal factors.

        It is the maximum at progress 0 and the minimum at progress 1.
        """
        self.temperature.fill_(self.max_temperature * (self.min_temperature / self.max_temperature) ** progress)

    @torch.no_grad()
    def update_statistics(self, mean: Float[Tensor, " w"], square: Float[Tensor, " w"]) -> None:
        """Update the running statistics.

        `mean` and `square` are the means of this step's frames and of their squares. The first
        call sets the statistics. Later calls move them by a fraction of the distance.
        """
        self.followed += 1
        share = 1 / self.followed.clamp_max(MOVING_AVERAGE_STEPS)
        self.mean.lerp_(mean, share)
        self.square.lerp_(square, share)


def compute_unused_code_share(code_frequencies: Float[Tensor, "g v"]) -> Float[Tensor, ""]:
    r"""Compute the share of unused codes.

    `code_frequencies` are the frequencies of the codes in each codebook. With the entropy
    \(H\) of each codebook,

    \[ 1 - \frac{1}{GV} \sum_g \exp H(\bar p_g) \]

    The share is 0 if all codes are equally frequent and almost 1 if only one code is used. The authors of
    wav2vec 2.0 compute their diversity loss in this way. The paper prints a relative of its logarithm, the
    mean negative entropy.
    """
    entropy = -torch.special.xlogy(code_frequencies, code_frequencies).sum(1)
    return 1 - entropy.exp().sum() / code_frequencies.numel()

r"""CPC on sounds: from what was heard so far, the near future is told from other moments of the same clip.

Claim: to predict the future in a space that is learned along with the prediction, an encoder must keep what lasts (sounds of speech,
the speaker) and may drop what does not (the exact samples). What the context holds serves phone and speaker classification.

$$\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{t+k}^\top W_k c_t)}{\sum_{j \in X} \exp(z_j^\top W_k c_t)}\right]$$

Shapes: clips (n, time) -> frames z (n, t, encoder.width) -> context c (n, t, dim); for each k of `ahead` steps a table (n, t - k, t).
X are the frames of the same clip: no row meets another, and sums and counts are what crosses the cut. The representation of a clip
is the mean and the deviation of its contexts.

Requirements: frames that see little beyond themselves, or the future is in the present already.

Relations: the scores are bilinear, one map for each distance, as in `losses.cpc`, where the negatives are all other rows. Negatives of
the same clip share its speaker and microphone: telling them apart needs what is said. wav2vec 2.0 looks both ways, hides what it
predicts and makes it discrete.

Reference: van den Oord, Li & Vinyals, "Representation Learning with Contrastive Predictive Coding", arXiv:1807.03748.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embedded, Key, Net, Recipe, Run, Sizes, UsageError, Views
from nearfar.encoders import pooled
from nearfar.heads.context import GRUContext
from nearfar.similarity.audio import Noise, Shift, SoundViews


@dataclass(frozen=True)
class CPCAudio(Recipe):
    """Contrastive predictive coding of sounds."""

    card = Card(
        title="CPC on sounds",
        paper="arXiv:1807.03748",
        year=2018,
        modality="audio",
        similarity="context-instance",
        query="the context of the past",
        positive="the frame some steps later",
        negative="all other frames of the same clip",
        encoder="strided 1-D convolutions (of samples, or of log-mel bands), end to end",
        head="GRU",
        score="bilinear, one map for each distance",
        loss="InfoNCE",
        equation=r"\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{t+k}^\top W_k c_t)}{\sum_{j \in X} \exp(z_j^\top W_k c_t)}\right]",
    )

    dim: int = 128
    """Width of the context."""
    ahead: int = 6
    """How many steps ahead are predicted."""

    def similarity(self, net: Net) -> SoundViews:
        return SoundViews(waves=(Shift(0.05), Noise()), views=1)

    def build(self, sizes: Sizes, encoder) -> Net:
        ways = nn.Parameter(torch.empty(self.ahead, self.dim, encoder.width).normal_(std=(self.dim * encoder.width) ** -0.5))
        return Net(encoder=encoder, context=GRUContext(encoder.width, self.dim), ways=ways)

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        z = net.encoder.states(x["v0"])
        if z.shape[1] <= self.ahead:
            raise UsageError(f"--ahead {self.ahead}: the clips have {z.shape[1]} frames only. Predict less far, or give longer --seconds")
        heard, c = net.encoder.heard(x["v0"], z.shape[1]), net.context(z)
        found = [_told_apart(c[:, :-k] @ way, z, heard, k) for k, way in enumerate(net.ways, start=1)]
        loss, right, count = (torch.stack(part)[None] for part in zip(*found, strict=True))
        return {"loss": loss, "right": right, "count": count}

    def objective(self, net: Net, z: Embedded, key: Key) -> dict[str, Tensor]:
        count = z["count"].sum(0).clamp_min(1)
        accuracy = z["right"].sum(0) / count
        loss = (z["loss"].sum(0) / count).mean()
        return {"loss": loss, "accuracy_next": accuracy[0], "accuracy_last": accuracy[-1]}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        z = net.encoder.states(x)
        return pooled(net.context(z), net.encoder.heard(x, z.shape[1]))


def _told_apart(
    predicted: Float[Tensor, "n s w"], z: Float[Tensor, "n t w"], heard: Bool[Tensor, "n t"], k: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Sums over moments t of the loss of finding z[t + k] among the clip's frames and of how often it was the best; and their number."""
    scores = (predicted @ z.transpose(1, 2)).float().masked_fill(~heard[:, None], -torch.inf)
    wanted = torch.arange(k, z.shape[1], device=z.device).expand(len(z), -1)
    counts = heard[:, k:] & heard[:, :-k]
    scores, wanted = scores[counts], wanted[counts]
    return F.cross_entropy(scores, wanted, reduction="sum"), (scores.argmax(1) == wanted).sum().float(), counts.sum().float()


paper = CPCAudio(dim=256, ahead=12), Run(
    data="librispeech-100", encoder="wave-512", rate=16000, seconds=1.28, batch=64, steps=300_000, lr=2e-4, weight_decay=0.0, warmup=0.0,
)  # fmt: skip

reported = {
    "LibriSpeech phone classification, linear": (64.6, "arXiv:1807.03748, table 1"),
    "LibriSpeech speaker classification, linear": (97.4, "arXiv:1807.03748, table 1"),
}

tiny = CPCAudio(), Run(data="tones", encoder="mel", steps=200, batch=64, lr=2e-3)

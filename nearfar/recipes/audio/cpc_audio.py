r"""CPC on audio: predict future frames from past context, against the other frames of the batch.

Claim: To predict the future in a learned latent space, an encoder must keep slow features (phonemes, the
speaker) and may drop fast ones (the exact waveform). The context vectors are useful for phone and speaker
classification.

$$\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{t+k}^\top W_k c_t)}{\sum_{j \in X} \exp(z_j^\top W_k c_t)}\right]$$

Shapes: clips (n, time) -> frames z (n, t, encoder.width) -> context c (n, t, dim). For each step k from
`min_steps_ahead` to `steps_ahead` the scores are a table: the rows are all frames of the batch that are not
padding and have a future, the columns are these futures. A clip is represented by the mean and the standard
deviation of its frames and contexts.

Requirements: frames with a small receptive field. Otherwise the present frame already contains the future
one: choose `min_steps_ahead` beyond the receptive field of a frame. A batch of several clips: negatives of
the same clip share its speaker and microphone, so that the encoder must learn the spoken content; negatives
of other clips make the mean over time informative too. Table 2 of the paper compares the two kinds.
`same_clip_negatives=False` leaves the first kind out.

Relations: `losses.cpc` with frames as rows. The past comes from one view and the future from another view,
after Kharitonov et al.: voice, microphone and room differ, time does not, so that accidental cues do not help
the prediction. Nandan & Vepa contrast clips, this recipe contrasts frames. wav2vec 2.0 uses context from both
directions, masks the frames it predicts and quantizes the targets.

Reference: van den Oord, Li & Vinyals, "Representation Learning with Contrastive Predictive Coding",
arXiv:1807.03748; for the views Kharitonov et al., "Data Augmenting Contrastive Learning of Speech
Representations in the Time Domain", arXiv:2007.00991.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, UsageError, Views
from nearfar.encoders import pool_mean_std
from nearfar.heads.context import GRUContext
from nearfar.losses import info_nce
from nearfar.scores import Scores, bilinear
from nearfar.similarity.audio import SoundViews, aligned_sound_views


@dataclass(frozen=True)
class CPCAudio(Recipe):
    """Contrastive predictive coding on audio."""

    card = Card(
        title="CPC on sounds",
        paper="arXiv:1807.03748",
        year=2018,
        modality="audio",
        similarity="context-instance",
        query="the context of the past",
        positive="the frame some steps later, in another view",
        negative="all other frames of the clip and of the batch's other clips",
        encoder="strided 1-D convolutions (of samples, or of log-mel bands), end to end",
        head="GRU",
        score="bilinear, one map for each distance",
        loss="InfoNCE",
        equation=r"\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{t+k}^\top W_k c_t)}{\sum_{j \in X} \exp(z_j^\top W_k c_t)}\right]",
        family="mutual information",
        similarity_type=("context-instance",),
        head_type=("contextualization",),
    )

    dim: int = 128
    """Dimension of the context vectors."""
    min_steps_ahead: int = 5
    """First predicted step. Frames that overlap the present can be predicted without learning."""
    steps_ahead: int = 8
    """Last predicted step."""
    window_share: float = 1.0
    """Share of each clip that a training step uses. Choose less than 1 for long clips."""

    same_clip_negatives: bool = True
    """Whether other frames of the same clip are negatives too. Turn off for stationary sounds, whose frames
    are all alike."""

    def __post_init__(self):
        super().__post_init__()
        if self.min_steps_ahead > self.steps_ahead:
            raise UsageError(
                f"--min-steps-ahead {self.min_steps_ahead} is larger than --steps-ahead {self.steps_ahead}: nothing would be predicted"
            )

    def similarity(self, net: Net) -> SoundViews:
        return aligned_sound_views(getattr(net.encoder, "front", None), self.window_share)

    def build(self, sizes: Sizes, encoder) -> Net:
        ways = torch.empty(self.steps_ahead - self.min_steps_ahead + 1, self.dim, encoder.width).normal_(
            std=(self.dim * encoder.width) ** -0.5
        )
        return Net(encoder=encoder, context=GRUContext(encoder.width, self.dim), ways=nn.Parameter(ways))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        past, future = net.encoder.encode_frames(x["v0"]), net.encoder.encode_frames(x["v1"])
        frames = past.shape[1]
        if frames <= self.steps_ahead:
            raise UsageError(
                f"--steps-ahead {self.steps_ahead}: the clips have only {frames} frames. Reduce --steps-ahead, or increase --seconds"
            )
        return {"c": net.context(past), "z": future, "heard": net.encoder.compute_frame_mask(x["v0"], frames)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        losses, information = [], []
        for k, way in enumerate(net.ways, start=self.min_steps_ahead):
            both = z["heard"][:, :-k] & z["heard"][:, k:]
            c, future = z["c"][:, :-k][both], z["z"][:, k:][both]
            losses.append(self._info_nce(c, future, way, both.nonzero()[:, 0]) if len(c) else c.sum())
            information.append(math.log(max(1, len(c))) - losses[-1].detach())
        return {"loss": torch.stack(losses).mean(), "information_first_step": information[0], "information_last_step": information[-1]}

    def _info_nce(self, c: Tensor, future: Tensor, projection: Tensor, clip: Tensor) -> Tensor:
        scores = Scores.from_pairs(c, future, score=bilinear(projection))
        return info_nce(scores if self.same_clip_negatives else scores.exclude_negatives(clip, clip)).mean()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        z = net.encoder.encode_frames(x)
        return pool_mean_std(torch.cat([z, net.context(z)], 2), net.encoder.compute_frame_mask(x, z.shape[1]))


paper = CPCAudio(dim=256, min_steps_ahead=1, steps_ahead=12), TrainConfig(
    data="librispeech-100", encoder="wave-512", sample_rate=16000, seconds=1.28,
    batch_size=64, steps=300_000, lr=2e-4, weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "LibriSpeech phone classification, linear": (64.6, "arXiv:1807.03748, table 1"),
    "LibriSpeech speaker classification, linear": (97.4, "arXiv:1807.03748, table 1"),
}

tiny = CPCAudio(), TrainConfig(data="tones", encoder="mel", steps=200, batch_size=64, lr=2e-3)

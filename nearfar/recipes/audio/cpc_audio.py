r"""CPC on sounds: from what was heard so far, the near future is told from all other moments of the batch.

Claim: to predict the future in a space that is learned along with the prediction, an encoder must keep what lasts (sounds of speech,
the speaker) and may drop what does not (the exact samples). What the context holds serves phone and speaker classification.

$$\mathcal{L}_k = -\mathbb{E}\left[\log \frac{\exp(z_{t+k}^\top W_k c_t)}{\sum_{j \in X} \exp(z_j^\top W_k c_t)}\right]$$

Shapes: clips (n, time) -> frames z (n, t, encoder.width) -> context c (n, t, dim); for each step k from `nearest` to `ahead` a table of
all moments of the batch that are heard and have a future against their futures. The representation of a clip is the mean and the
deviation of its frames and contexts.

Requirements: frames that see little beyond themselves, or the future is in the present already: steps nearer than a frame's own reach
(`nearest`) are not asked for. A batch of several clips: negatives of the same clip share its speaker and microphone, so that what is
said tells them apart; those of other clips make the mean over time say something too. The paper's table 2 compares the two kinds;
`own_clip` leaves the first out.

Relations: `losses.cpc` with moments as rows. The past is seen in one view and the future in another, with the voice, the microphone
and the room changed but not the time, after Kharitonov et al.: what the two share by accident predicts nothing. Nandan & Vepa contrast
clips, here moments are. wav2vec 2.0 looks both ways, hides what it predicts and makes it discrete.

Reference: van den Oord, Li & Vinyals, "Representation Learning with Contrastive Predictive Coding", arXiv:1807.03748; for the views
Kharitonov et al., "Data Augmenting Contrastive Learning of Speech Representations in the Time Domain", arXiv:2007.00991.
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
    """Contrastive predictive coding of sounds."""

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
    )

    dim: int = 128
    """Width of the context."""
    min_steps_ahead: int = 5
    """The first step ahead that is predicted. Frames that overlap tell of each other without having learned anything."""
    steps_ahead: int = 8
    """The last step ahead that is predicted."""
    window_share: float = 1.0
    """How much of a clip a step sees, as a share of its length; less than 1 for long sounds."""

    same_clip_negatives: bool = True
    """Whether other moments of the same clip are negatives too; not for sounds that go on and on, whose moments are all alike."""

    def __post_init__(self):
        super().__post_init__()
        if self.min_steps_ahead > self.steps_ahead:
            raise UsageError(
                f"--min-steps-ahead {self.min_steps_ahead} lies beyond --steps-ahead {self.steps_ahead}: nothing would be predicted"
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
                f"--steps-ahead {self.steps_ahead}: the clips have {frames} frames only. Predict less far, or give longer --seconds"
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
    data="librispeech-100", encoder="wave-512", sample_rate=16000, seconds=1.28, batch_size=64, steps=300_000, lr=2e-4, weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "LibriSpeech phone classification, linear": (64.6, "arXiv:1807.03748, table 1"),
    "LibriSpeech speaker classification, linear": (97.4, "arXiv:1807.03748, table 1"),
}

tiny = CPCAudio(), TrainConfig(data="tones", encoder="mel", steps=200, batch_size=64, lr=2e-3)

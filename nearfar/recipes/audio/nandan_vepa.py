r"""Language-agnostic speech embeddings: SimCLR on augmented mel spectrograms.

Claim: SimCLR works for speech without changes. The views are mel spectrograms with SpecAugment's warps and
masks. The encoder learns embeddings that serve emotion recognition in languages for which it saw no labels.

$$\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}
{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)}$$

Shapes: clips (n, time) -> views v0, v1 (n, bands, frames) -> representation h (n, encoder.dim) -> z (n, dim).
The loss is the mean over all 2n rows.

Requirements: an encoder with a log-mel front end (--encoder mel, mel-deep or mel-transformer), because the
views are spectrograms.

Relations: SimCLR with views of audio clips instead of views of images. CPC and wav2vec 2.0 contrast frames
within a clip, this recipe contrasts clips. The encoder becomes invariant to everything that the views change:
tempo, pitch, loudness, microphone, and masked parts of time and of the bands.

Reference: Nandan & Vepa, "Language Agnostic Speech Embeddings for Emotion Classification", ICML 2020 workshop
on Self-supervision in Audio and Speech.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, UsageError, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity.audio import SoundViews, sound_views


@dataclass(frozen=True)
class NandanVepa(Recipe):
    """SimCLR on augmented mel spectrograms."""

    card = Card(
        title="Language-agnostic speech embeddings (Nandan & Vepa)",
        paper="Language Agnostic Speech Embeddings for Emotion Classification",
        year=2020,
        modality="audio",
        similarity="data transformation",
        query="augmented mel spectrogram",
        positive="the other augmented spectrogram of the same clip",
        negative="spectrograms of the batch's other clips, 2(N-1)",
        encoder="one, end to end",
        head="MLP with one hidden layer",
        score="cosine / tau",
        loss="NT-Xent (InfoNCE over both views)",
        equation=r"\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}"
        r"{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)}",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    dim: int = 128
    """Dimension of the space where views are compared."""
    temperature: float = 0.2
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    min_window_share: float = 0.7
    """Smallest share of a clip that a view covers. Choose a small share for long, stationary sounds."""
    max_window_share: float = 1.3
    """Largest share of a clip that a view covers. Beyond 1 the view is the whole clip, sped up."""
    norm: HeadNorm = "batch"
    """Normalization in the projection head."""

    def similarity(self, net: Net) -> SoundViews:
        return sound_views(net.encoder.front, (self.min_window_share, self.max_window_share))

    def build(self, sizes: Sizes, encoder) -> Net:
        if not hasattr(encoder, "front"):
            raise UsageError("nandan-vepa compares spectrograms: use --encoder mel, mel-deep or mel-transformer")
        return Net(encoder=encoder, head=mlp(encoder.dim, encoder.dim, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z0, z1 = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"z0": z0, "z1": z1}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return info_nce(Scores.from_views(z["z0"], z["z1"]) / self.temperature).mean()


paper = NandanVepa(), TrainConfig(data="several corpora of speech", encoder="mel-deep", sample_rate=16000, batch_size=256, epochs=100)

reported = {}

tiny = NandanVepa(), TrainConfig(data="tones", encoder="mel", steps=200, batch_size=64, lr=2e-3)

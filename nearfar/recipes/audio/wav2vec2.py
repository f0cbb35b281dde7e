r"""wav2vec 2.0: identify the quantized code of each masked frame among the codes of other frames.

Claim: speech representations learned by predicting masked spans with quantized targets need ten minutes of
transcribed speech where others need a hundred hours.

$$\mathcal{L} = -\log \frac{\exp(\operatorname{sim}(c_t, q_t)/\kappa)}
{\sum_{\tilde q \in Q_t} \exp(\operatorname{sim}(c_t, \tilde q)/\kappa)}
+ \alpha\, \Bigl(1 - \frac{1}{GV} \sum_g \exp H(\bar p_g)\Bigr)$$

Shapes: clips (n, time) -> frames z (n, t, encoder.width) -> contexts c of the masked z and codes q of the
unmasked z, both (n, t, dim). `embed` returns the masked frames of both, packed (h, dim), and sums over the
codes for the diversity term. Q_t are the codes of all masked frames of the batch. A clip is represented by
the mean and standard deviation of its frames (closest to the sound) and contexts (closest to the task).

Requirements: clips of at least about twenty frames, so that some frames stay unmasked.

Relations: BERT's task with a contrastive loss and a learned vocabulary; CPC with context from both
directions. Three things differ from the paper, which has hours of long utterances, not short clips.
Distractors also come from other clips (an option in the authors' code): within a word, the position of a
frame alone identifies it. Codes come from another view of the clip than the context, with another voice,
microphone and room. No gradient flows from codes into frames, as in HuBERT: otherwise frames become easy to
guess. Distractors with the target's codes stay in, as in the paper (the authors' code removes them):
otherwise equal codes everywhere are the easiest solution.

Reference: Baevski, Zhou, Mohamed & Auli, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech
Representations", NeurIPS 2020, arXiv:2006.11477.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import pool_mean_std
from nearfar.heads.context import MaskedTransformer
from nearfar.heads.quantization import GumbelQuantizer, compute_unused_code_share
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity.audio import SoundViews, aligned_sound_views


@dataclass(frozen=True)
class Wav2Vec2(Recipe):
    """Masked prediction of quantized speech with a contrastive loss between frames."""

    card = Card(
        title="wav2vec 2.0", paper="arXiv:2006.11477", year=2020, modality="audio",
        similarity="context-instance",
        query="the context of a hidden moment",
        positive="the codes of what was there, in another view",
        negative="codes of the other hidden moments of the clip and of the batch's other clips",
        encoder="strided 1-D convolutions (of samples, or of log-mel bands), end to end",
        head="Gumbel quantizer; masked transformer",
        score="cosine / kappa",
        loss="InfoNCE and diversity of the codes",
        equation=r"\mathcal{L} = -\log \frac{\exp(\operatorname{sim}(c_t, q_t)/\kappa)}"
        r"{\sum_{\tilde q \in Q_t} \exp(\operatorname{sim}(c_t, \tilde q)/\kappa)}",
        family="NCE and softmax", similarity_type=("context-instance",), head_type=("quantization", "contextualization"),
    )  # fmt: skip
    limits: ClassVar = {"mask_start_share": (0.001, 1.0), "diversity_weight": (0.0, float("inf"))}

    dim: int = 128
    """Dimension of contexts and codes."""
    depth: int = 2
    """Number of transformer layers."""
    codebooks: int = 2
    """Number of codebooks (G in the equation)."""
    codebook_size: int = 32
    """Entries of each codebook (V in the equation)."""
    temperature: float = 0.1
    """Temperature of the contrastive loss (kappa in the equation)."""
    diversity_weight: float = 0.1
    """Weight of the diversity loss of the codes (alpha in the equation)."""
    mask_start_share: float = 0.15
    """Share of the frames at which a masked span begins, rounded up."""
    mask_length: int = 5
    """Length of a masked span in frames."""
    window_share: float = 1.0
    """Share of each clip that a training step uses. Choose less than 1 for long clips."""
    same_clip_negatives: bool = True
    """Whether frames of the same clip are distractors too. Turn off for stationary sounds."""

    def similarity(self, net: Net) -> SoundViews:
        return aligned_sound_views(getattr(net.encoder, "front", None), self.window_share)

    def build(self, sizes: Sizes, encoder) -> Net:
        context = MaskedTransformer(encoder.width, self.dim, self.depth)
        quantiser = GumbelQuantizer(encoder.width, self.dim, self.codebooks, self.codebook_size)
        return Net(encoder=encoder, context=context, quantiser=quantiser, project=nn.Linear(self.dim, self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z, slots = net.encoder.encode_frames(x["v0"]), x["slot"]
        heard = net.encoder.compute_frame_mask(x["v0"], z.shape[1])
        hidden = draw_mask(heard, slots, rng_key, self.mask_start_share, self.mask_length)
        c = net.project(net.context(z, heard, hidden))
        with torch.no_grad():
            there = net.encoder.encode_frames(x["v1"])
        q, likely = net.quantiser(there, slots, rng_key)
        sums = {"likely": likely[heard], "there": there[heard], "squares": there[heard].square(), "count": heard[heard]}
        clip = slots[:, None].expand_as(hidden)
        return {"c": c[hidden], "q": q[hidden], "clip": clip[hidden]} | {name: rows.sum(0)[None] for name, rows in sums.items()}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        scores = Scores.from_pairs(z["c"], z["q"]) / self.temperature
        contrast = info_nce(scores if self.same_clip_negatives else scores.exclude_negatives(z["clip"], z["clip"])).mean()
        likely = z["likely"].sum(0)
        unused = compute_unused_code_share(likely / likely.sum(1, keepdim=True))
        return {"loss": contrast + self.diversity_weight * unused, "contrast": contrast, "unused_codes": unused}

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        count = z["count"].sum()
        net.quantiser.update_statistics(z["there"].sum(0) / count, z["squares"].sum(0) / count)
        net.quantiser.anneal_temperature(progress)

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        z = net.encoder.encode_frames(x)
        heard = net.encoder.compute_frame_mask(x, z.shape[1])
        return pool_mean_std(torch.cat([z, net.context(z, heard)], 2), heard)


def draw_mask(
    heard: Bool[Tensor, "n t"], slots: Int[Tensor, " n"], rng_key: RandomKey, mask_start_share: float, mask_length: int
) -> Bool[Tensor, "n t"]:
    """Draw masked spans of `mask_length` frames each. Padded frames stay unmasked."""
    u = rng_key("hide").uniform(slots, heard.shape[1]).masked_fill(~heard, 2.0)
    wanted = (heard.sum(1, keepdim=True) * mask_start_share).ceil().long()
    begin = u <= u.sort(1).values.gather(1, wanted - 1)
    reached = F.max_pool1d(F.pad(begin[:, None].float(), (mask_length - 1, 0)), mask_length, stride=1)[:, 0] > 0
    return reached & heard


paper = Wav2Vec2(dim=256, depth=12, codebook_size=320, mask_start_share=0.065, mask_length=10), TrainConfig(
    data="librispeech-960", encoder="wave-512", sample_rate=16000, seconds=15.6,
    batch_size=256, steps=400_000, lr=5e-4, weight_decay=0.01, warmup_ratio=0.08,
)  # fmt: skip

reported = {
    "LibriSpeech test-clean WER, 10 min of labels, LARGE on LV-60k": (4.8, "arXiv:2006.11477, table 1"),
    "LibriSpeech test-clean WER, 960 h of labels, LARGE on LV-60k": (1.8, "arXiv:2006.11477, table 2"),
}

tiny = Wav2Vec2(mask_start_share=0.15, mask_length=2), TrainConfig(data="tones", encoder="mel", steps=200, batch_size=64, lr=4e-3)

r"""Unsupervised SimCSE: match two encodings of a sentence that differ in their dropout masks.

Claim: dropout is a minimal augmentation. Two passes of the same sentence through the same encoder, with
independent dropout, give a positive pair. Word replacement, cropping and back-translation are worse. Training
spreads an encoder's anisotropic vectors over the sphere and keeps similar sentences close.

$$\ell_i = -\log \frac{\exp(\operatorname{sim}(h_i^{z_i}, h_i^{z_i'})/\tau)}
{\sum_{j=1}^{N} \exp(\operatorname{sim}(h_i^{z_i}, h_j^{z_j'})/\tau)}$$

Shapes: token ids v0, v1 (n, t), identical -> h (n, encoder.dim) -> MLP -> z0, z1 (n, encoder.dim).

Requirements: an encoder that is already pretrained on language (--init-from RUN of `bert`, or hf:…), because
dropout alone does not teach words. Dropout above 0, because otherwise the two vectors of a positive pair are
identical.

Relations: SimCLR with dropout as the augmentation, one direction instead of two, and no comparison within a
view. `simcse-sup` uses an entailed sentence as the positive and a contradiction as a hard negative. The MLP
is used in training only.

Reference: Gao, Yao & Chen, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", EMNLP 2021,
arXiv:2104.08821.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Similarity, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import simcse
from nearfar.similarity.sentences import build_sentence_views


@dataclass(frozen=True)
class SimCSEUnsupervised(Recipe):
    """Simple contrastive learning of sentence embeddings, from single sentences."""

    card = Card(
        title="SimCSE, unsupervised",
        paper="arXiv:2104.08821",
        year=2021,
        modality="text",
        similarity="data transformation",
        query="sentence under one dropout mask",
        positive="the same sentence under another dropout mask",
        negative="the batch's other sentences, N-1",
        encoder="one transformer, pre-trained",
        head="one tanh layer, in training only",
        score="cosine / tau",
        loss="InfoNCE",
        equation=r"\ell_i = -\log \frac{\exp(\operatorname{sim}(h_i^{z_i}, h_i^{z_i'})/\tau)}"
        r"{\sum_{j=1}^{N} \exp(\operatorname{sim}(h_i^{z_i}, h_j^{z_j'})/\tau)}",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9), "changed_share": (0.0, 0.9)}

    temperature: float = 0.05
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoder: the strength of the augmentation."""
    pooling: Pooling = "cls"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    augmentation: Literal["dropout", "erase-tokens", "erase-span", "hide-tokens", "cut-features", "eda"] = "dropout"
    """Augmentation in addition to dropout, which differs between the two views. dropout adds none. The paper
    found the others worse: cutoff of tokens, a span or features, masked tokens, easy data augmentation of
    words (eda)."""
    changed_share: float = 0.1
    """Share of tokens, features or words that the augmentation changes."""
    wordnet_folder: str = ""
    """Folder of WordNet's dictionary files, for eda."""

    def similarity(self, net: Net) -> Similarity:
        return build_sentence_views(
            self.augmentation, self.changed_share, net.sizes, net.encoder.token_embeddings.shape[1], self.wordnet_folder
        )

    def build(self, sizes: Sizes, encoder) -> Net:
        head = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.Tanh())
        return Net(encoder=encoder.configure(self.pooling, self.dropout), head=head)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        kept = torch.cat([x["kept0"], x["kept1"]]) if "kept0" in x else None
        z0, z1 = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]), kept)).chunk(2)
        return {"z0": z0, "z1": z1}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return simcse(z["z0"], z["z1"], self.temperature)


paper = SimCSEUnsupervised(), TrainConfig(
    data="wiki1m.txt", encoder="hf:bert-base-uncased", max_length=32, batch_size=64, epochs=1, lr=3e-5, weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "STS-B test Spearman, BERT-base": (76.85, "arXiv:2104.08821, table 5"),
    "average of seven STS tasks, Spearman, BERT-base": (76.25, "arXiv:2104.08821, table 5"),
}

tiny = (
    SimCSEUnsupervised(pooling="mean"),
    TrainConfig(data="docstrings", encoder="bert-tiny", vocab_size=2048, max_length=16, steps=60, batch_size=64, lr=5e-4),
)

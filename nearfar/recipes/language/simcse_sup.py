r"""Supervised SimCSE: pull entailed sentences together and push contradictions apart.

Claim: entailment pairs from natural language inference are better positives than any augmentation of a
sentence. The contradiction written for the same premise is a better negative than any other sentence.

$$\ell_i = -\log \frac{e^{\operatorname{sim}(h_i, h_i^+)/\tau}}
{\sum_{j=1}^{N} \left( e^{\operatorname{sim}(h_i, h_j^+)/\tau} + \alpha^{\mathbb{1}_i^j} e^{\operatorname{sim}(h_i, h_j^-)/\tau} \right)}$$

Shapes: token ids v0 (sentence), v1 (positive), v2 (hard negative) (n, t) -> MLP of the encoder -> h, h+, h-
(n, encoder.dim).

Requirements: rows of three texts (--columns anchor,positive,negative). alpha weights a sentence's own hard
negative. The hard negatives of other sentences always have weight 1.

Relations: `simcse-unsup` uses the same sentence as the positive and has no hard negatives. `sentence-bert`
learns to classify the same pairs. Multiple-negatives ranking with hard negatives is the case alpha = 1. In
this recipe the MLP belongs to the representation.

Reference: Gao, Yao & Chen, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", EMNLP 2021,
arXiv:2104.08821.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import simcse_supervised
from nearfar.similarity.sentences import TextColumns


@dataclass(frozen=True)
class SimCSESupervised(Recipe):
    """Simple contrastive learning of sentence embeddings, from triples of sentences."""

    card = Card(
        title="SimCSE, supervised",
        paper="arXiv:2104.08821",
        year=2021,
        modality="text",
        similarity="labels",
        query="premise",
        positive="a hypothesis that it entails",
        negative="a hypothesis that contradicts it, and the batch's other hypotheses",
        encoder="one transformer, pre-trained",
        head="one tanh layer, kept",
        score="cosine / tau",
        loss="InfoNCE with hard negatives",
        equation=r"\ell_i = -\log \frac{e^{\operatorname{sim}(h_i, h_i^+)/\tau}}{\sum_{j=1}^{N} \left("
        r" e^{\operatorname{sim}(h_i, h_j^+)/\tau} + \alpha^{\mathbb{1}_i^j} e^{\operatorname{sim}(h_i, h_j^-)/\tau} \right)}",
        family="NCE and softmax",
        similarity_type=("labels",),
        head_type=("projection",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9)}

    temperature: float = 0.05
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    hard_negative_weight: float = 1.0
    """Weight of a sentence's own hard negative (alpha in the equation)."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoder."""
    pooling: Pooling = "cls"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    def similarity(self, net: Net) -> TextColumns:
        return TextColumns(3)

    def build(self, sizes: Sizes, encoder) -> Net:
        head = nn.Sequential(nn.Linear(encoder.dim, encoder.dim), nn.Tanh())
        return Net(encoder=encoder.configure(self.pooling, self.dropout), head=head)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        h, positive, negative = self.encode(net, torch.cat([x["v0"], x["v1"], x["v2"]])).chunk(3)
        return {"h": h, "positive": positive, "negative": negative}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return simcse_supervised(z["h"], z["positive"], z["negative"], self.temperature, self.hard_negative_weight)

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return net.head(getattr(net, tower)(x))


paper = SimCSESupervised(), TrainConfig(
    data="nli_for_simcse.csv", encoder="hf:bert-base-uncased", columns="sent0,sent1,hard_neg", max_length=32, batch_size=512, epochs=3,
    lr=5e-5, weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "STS-B test Spearman, BERT-base": (84.25, "arXiv:2104.08821, table 5"),
    "average of seven STS tasks, Spearman, BERT-base": (81.57, "arXiv:2104.08821, table 5"),
}

tiny = (
    SimCSESupervised(),
    TrainConfig(data="docstring-triples", encoder="bag", vocab_size=2048, max_length=32, steps=200, batch_size=64, lr=2e-3),
)

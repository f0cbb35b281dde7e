r"""Sentence-BERT: embed two sentences with one encoder and compare the pooled vectors.

Claim: a cross-encoder that reads both sentences at once needs 65 hours to compare 10,000 sentences. A siamese
encoder trained on pairs needs seconds and loses little.

$$o = \operatorname{softmax}(W_t [u; v; |u - v|]) \quad\text{or}\quad (\cos(u, v) - y)^2
\quad\text{or}\quad \max(\lVert s_a - s_p \rVert - \lVert s_a - s_n \rVert + \epsilon, 0)$$

Shapes: token ids v0, v1 (and v2 of triplets) (n, t) -> u, v (n, encoder.dim).

Requirements: pairs with labels for --loss-type softmax; pairs with scores from 0 to --max-score for
regression; rows of three texts for triplet.

Relations: none of the three losses compares with the rest of the batch, as `simcse-sup` does on the same
rows. The classifier of the softmax loss is discarded, and the cosine that is used afterwards was never
trained.

Reference: Reimers & Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019,
arXiv:1908.10084.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, UsageError, Views
from nearfar.encoders import Pooling
from nearfar.losses import sbert_regression, sbert_softmax, triplet
from nearfar.scores import euclidean
from nearfar.similarity.sentences import TextColumns


@dataclass(frozen=True)
class SentenceBERT(Recipe):
    """Sentence embeddings using siamese BERT networks."""

    card = Card(
        title="Sentence-BERT",
        paper="arXiv:1908.10084",
        year=2019,
        modality="text",
        similarity="labels",
        query="sentence",
        positive="a sentence that it entails, or that people found alike",
        negative="a sentence that contradicts it",
        encoder="one transformer for both, pre-trained",
        head="pooling; a classifier in training",
        score="softmax on [u; v; |u - v|], cosine, or Euclidean distance",
        loss="cross-entropy, mean square, or triplet",
        equation=r"o = \operatorname{softmax}(W_t [u; v; |u - v|])",
        family="classification",
        similarity_type=("labels",),
        head_type=("contextualization", "classifier"),
    )
    uses_labels = True
    limits: ClassVar = {"dropout": (0.0, 0.9), "margin": (0.0, float("inf"))}

    loss_type: Literal["softmax", "regression", "triplet"] = "softmax"
    """Training objective: softmax (label of a pair), regression (score of a pair) or triplet."""
    margin: float = 1.0
    """Margin of the triplet loss (epsilon in the equation)."""
    max_score: float = 1.0
    """Score of two sentences with the same meaning, for regression (5 in STS)."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoder."""
    pooling: Pooling = "mean"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    def similarity(self, net: Net) -> TextColumns:
        if self.loss_type == "triplet":
            return TextColumns(3)
        return TextColumns(2, required_field="labels" if self.loss_type == "softmax" else "scores")

    def build(self, sizes: Sizes, encoder) -> Net:
        net = Net(encoder=encoder.configure(self.pooling, self.dropout))
        if self.loss_type == "softmax":
            if sizes["classes"] < 2:
                raise UsageError(
                    f"--loss-type softmax needs pairs with at least two labels, got {sizes['classes']}: --columns …,label=NAME"
                )
            net.classifier = nn.Linear(3 * encoder.dim, sizes["classes"], bias=False)
        return net

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        texts = [x[name] for name in ("v0", "v1", "v2") if name in x]
        vectors = net.encoder(torch.cat(texts)).chunk(len(texts))
        return {f"u{i}": u for i, u in enumerate(vectors)} | {"label": x["label"], "score": x["score"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        if self.loss_type == "softmax":
            return sbert_softmax(z["u0"], z["u1"], net.classifier.weight, z["label"])
        if self.loss_type == "regression":
            return sbert_regression(z["u0"], z["u1"], z["score"] / self.max_score).mean()
        return triplet(z["u0"], z["u1"], z["u2"], self.margin, euclidean).mean()


paper = SentenceBERT(), TrainConfig(
    data="snli and multinli", encoder="hf:bert-base-uncased", columns="premise,hypothesis,label=label",
    max_length=128, batch_size=16, epochs=1,
    lr=2e-5, weight_decay=0.01, warmup_ratio=0.1,
)  # fmt: skip

reported = {
    "STS-B test Spearman, SBERT-NLI-base": (77.03, "arXiv:1908.10084, table 1"),
    "average of seven STS tasks, Spearman, SBERT-NLI-base": (74.89, "arXiv:1908.10084, table 1"),
    "SentEval average, SBERT-NLI-base": (87.41, "arXiv:1908.10084, table 5"),
}

tiny = SentenceBERT(), TrainConfig(data="docstring-pairs", encoder="bag", vocab_size=2048, max_length=32, steps=200, batch_size=64, lr=2e-3)

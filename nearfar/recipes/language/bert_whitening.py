r"""BERT-whitening: whiten the sentence vectors of a frozen encoder.

Claim: the sentence vectors of a language model lie in a narrow cone, where cosines carry little information.
A linear map makes their mean zero and their covariance the identity. It is fitted in closed form and improves
similarity as much as a trained flow. Keeping only the first k directions makes vectors shorter without making
them worse.

$$\tilde x_i = (x_i - \mu) W, \qquad \Sigma = \operatorname{Cov}(x) = U \Lambda U^\top,
\qquad W = \big(U \Lambda^{-1/2}\big)_{:,\,1 \ldots k}$$

Shapes: token ids v0 (n, t) -> x (n, encoder.dim) -> z (n, k).

Requirements: an encoder that is already pretrained on language (--init-from RUN of `bert`, or hf:…), and more
sentences than k. No weight is trained: the run has no steps, and its refresh fits the mean and W. $\Lambda$
may contain zeros (fewer sentences than dimensions): such directions are left out.

Relations: W-MSE whitens every batch and backpropagates through the whitening. BERT-whitening whitens once,
after training. BERT-flow uses an invertible network as the map and fits it by maximum likelihood. The vectors
of any run can be whitened this way. SimCSE spreads vectors by training instead.

Reference: Su, Cao, Liu & Ou, "Whitening Sentence Representations for Better Semantics and Faster Retrieval",
2021, arXiv:2103.15316.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Similarity, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.heads.whitening import Whiten
from nearfar.similarity.sentences import build_sentence_views


@dataclass(frozen=True)
class BertWhitening(Recipe):
    """Whitening of a frozen encoder's sentence vectors."""

    card = Card(
        title="BERT-whitening",
        paper="arXiv:2103.15316",
        year=2021,
        modality="text",
        similarity="none: the distribution of all sentences",
        query="sentence",
        positive="none",
        negative="none",
        encoder="one transformer, pre-trained and frozen",
        head="linear map, in closed form",
        score="cosine",
        loss="none (closed form)",
        equation=r"\tilde x = (x - \mu)\, U \Lambda^{-1/2}, \qquad \operatorname{Cov}(x) = U \Lambda U^\top",
        family="closed form",
        similarity_type=("none",),
        head_type=("projection",),
    )
    trains: ClassVar = ()

    components: int | None = None
    """Number of directions to keep, largest variance first (k in the equation); all by default."""
    pooling: Pooling = "first-last"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    def similarity(self, net: Net) -> Similarity:
        return build_sentence_views("dropout", 0.1, net.sizes, net.encoder.token_embeddings.shape[1], "")

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder.configure(self.pooling, 0.0).requires_grad_(False), whiten=Whiten(encoder.dim, self.components))

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        net.whiten.fit(encode_all("frozen").to(net.whiten.mean.device))
        return ()

    def encode(self, net: Net, x: Tensor, tower: str = "encoder") -> Tensor:
        return net.encoder(x) if tower == "frozen" else net.whiten(net.encoder(x))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"z": net.whiten(net.encoder(x["v0"]))}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        """Compute the mean squared difference between the covariance and the identity.

        The closed-form fit brings this value to zero.
        """
        covariance = torch.cov(z["z"].T)
        return (covariance - torch.eye(len(covariance), device=covariance.device)).square().mean()


paper = BertWhitening(components=256), TrainConfig(data="nli.txt", encoder="hf:bert-base-uncased", max_length=64)

reported = {"STS-B test Spearman, BERT-base, first-last, fitted on NLI": (68.19, "arXiv:2103.15316, table 1")}

tiny = BertWhitening(components=64, pooling="mean"), TrainConfig(data="docstrings", encoder="bert-tiny", vocab_size=2048, max_length=16)

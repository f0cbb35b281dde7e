r"""BERT: predict masked tokens from their context, against the whole vocabulary.

Claim: to predict masked words from both sides an encoder must learn the language. The learned features serve
every task. Seen as contrastive learning, the masked position in its context is the query, the embedding of
its token is the positive, and the rest of the vocabulary is the set of negatives.

$$\mathcal{L} = -\frac{1}{|H|} \sum_{t \in H} \log \frac{\exp(h_t^\top e_{x_t} + b_{x_t})}{\sum_{w \in V} \exp(h_t^\top e_w + b_w)}$$

Shapes: token ids v0, some of them masked (n, t) -> states (n, t, encoder.dim) -> states of the masked
positions (n, k, width of e) -> logits over the vocabulary (n, k, |V|). Rows do not interact: `embed` returns
sums and counts over the chunk.

Requirements: a large corpus, and a tokenizer with a mask token. The resulting sentence vectors lie in a
narrow cone and compare poorly. `simcse-unsup` with --init-from RUN spreads them.

Relations: the output layer is the input embedding table. The loss is therefore a contrast between a context
and words, as in word2vec, with the exact softmax instead of sampled negatives. This recipe is only the masked
language model: it has no next-sentence prediction, which later work found unnecessary (RoBERTa).

Reference: Devlin, Chang, Lee & Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", NAACL 2019, arXiv:1810.04805.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import mlm
from nearfar.similarity.sentences import MaskedTokens


@dataclass(frozen=True)
class Bert(Recipe):
    """Masked language modeling: pretraining of a text encoder."""

    card = Card(
        title="BERT (masked language model)",
        paper="arXiv:1810.04805",
        year=2019,
        modality="text",
        similarity="context-instance",
        query="a hidden place in its sentence",
        positive="the token that was there",
        negative="the rest of the vocabulary",
        encoder="one transformer encoder",
        head="one layer, then the table of input vectors",
        score="dot product",
        loss="cross-entropy over the vocabulary",
        equation=r"\mathcal{L} = -\frac{1}{|H|} \sum_{t \in H} \log"
        r" \frac{\exp(h_t^\top e_{x_t} + b_{x_t})}{\sum_{w \in V} \exp(h_t^\top e_w + b_w)}",
        family="NCE and softmax",
        similarity_type=("context-instance",),
        head_type=("projection",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9), "masked_share": (0.01, 0.9)}

    masked_share: float = 0.15
    """Share of the tokens that are masked."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoder."""
    pooling: Pooling = "mean"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    def similarity(self, net: Net) -> MaskedTokens:
        return MaskedTokens.from_sizes(net.sizes, self.masked_share)

    def build(self, sizes: Sizes, encoder) -> Net:
        words, width = encoder.token_embeddings.shape
        head = nn.Sequential(nn.Linear(encoder.dim, width), nn.GELU(), nn.LayerNorm(width))
        return Net(encoder=encoder.configure(self.pooling, self.dropout), head=head, bias=nn.Parameter(torch.zeros(words)))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        states, places, words = net.encoder.encode_tokens(x["v0"]), x["places"], x["words"]
        h = net.head(states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2])))
        logits, hidden = h @ net.encoder.token_embeddings.T + net.bias, words >= 0
        count = hidden.sum()[None].float()
        right = (logits.argmax(2) == words).sum()[None].float()
        return {"loss": mlm(logits, words, hidden)[None] * count, "right": right, "count": count}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        count = z["count"].sum().clamp_min(1)
        return {"loss": z["loss"].sum() / count, "accuracy": z["right"].sum() / count}


paper = Bert(), TrainConfig(
    data="wikipedia and books", encoder="bert-base", vocab_size=30522, max_length=512, batch_size=256, steps=1_000_000,
    lr=1e-4, weight_decay=0.01, warmup_ratio=0.01,
)  # fmt: skip

reported = {
    "GLUE average, BERT-base": (79.6, "arXiv:1810.04805, table 1"),
    "MNLI-matched accuracy, BERT-base": (84.6, "arXiv:1810.04805, table 1"),
}

tiny = Bert(), TrainConfig(data="docstrings", encoder="bert-tiny", vocab_size=1024, max_length=16, steps=100, batch_size=64, lr=5e-4)

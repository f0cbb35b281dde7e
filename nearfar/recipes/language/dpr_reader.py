r"""The reader of DPR: extract the span of a passage that answers a question.

Claim: once the passage is found, two vectors are enough to extract the answer: one scores the first token of
the span, the other scores the last token.

$$P_{\text{start}}(s) = \operatorname{softmax}(P\, w_{\text{start}})_s, \quad
P_{\text{end}}(t) = \operatorname{softmax}(P\, w_{\text{end}})_t, \quad
\ell = -\log \sum_{s \in S} P_{\text{start}}(s) - \log \sum_{t \in T} P_{\text{end}}(t)$$

Shapes: question and passage as one row of token ids (n, t) -> P (n, t, encoder.dim) -> start and end scores
(n, t, 2). S and T are the positions where an occurrence of the answer begins and ends.

Requirements: columns named question, passage and answer, as in SQuAD's .json files. --max-length counts the
tokens of both texts. A row whose answer was truncated has no loss.

Relations: InfoNCE within a row: the tokens of the passage are the candidates, the tokens at the answer are
the positives. The retriever (`dpr`, BM25 or both) chooses the passages. The paper uses a third vector for
this.

Reference: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020,
arXiv:2004.04906.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.similarity.questions import AnswerSpans


@dataclass(frozen=True)
class DPRReader(Recipe):
    """Extractive reader of DPR."""

    card = Card(
        title="DPR's reader",
        paper="arXiv:2004.04906",
        year=2020,
        modality="text",
        similarity="labels",
        query="what a beginning (an end) of an answer looks like",
        positive="the tokens of the passage at which an answer begins (ends)",
        negative="the other tokens of the passage",
        encoder="one transformer for both texts at once, pre-trained",
        head="one linear layer, kept",
        score="dot product",
        loss="negative log-likelihood of the span",
        equation=r"\ell = -\log \sum_{s \in S} P_{\text{start}}(s) - \log \sum_{t \in T} P_{\text{end}}(t)",
        family="classification",
        similarity_type=("labels",),
        head_type=("classifier",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9)}

    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoder."""

    def similarity(self, net: Net) -> AnswerSpans:
        return AnswerSpans(net.sizes["max_length"])

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder.configure("mean", self.dropout), span=nn.Linear(encoder.dim, 2, bias=False))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        begins, ends = self.score_spans(net, x["tokens"], x["inside"])
        known = x["begin"].any(1)
        loss = _missing(begins, x["begin"]) + _missing(ends, x["end"])
        return {"loss": loss.where(known, 0.0), "known": known.float()}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return z["loss"].sum() / z["known"].sum().clamp_min(1)

    def score_spans(
        self, net: Net, tokens: Int64[Tensor, "n t"], in_passage: Bool[Tensor, "n t"]
    ) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
        """Return log-probabilities of the start and the end of the answer.

        Args:
            tokens: ids of question and passage, one row each (n, t).
            in_passage: True for the tokens of the passage (n, t). Only these can start or end an answer.
        """
        scores = net.span(net.encoder.encode_tokens(tokens)).float()
        lowest = torch.finfo(scores.dtype).min
        begins, ends = scores.masked_fill(~in_passage[:, :, None], lowest).log_softmax(1).unbind(2)
        return begins, ends


def _missing(log_p: Float[Tensor, "n t"], right: Bool[Tensor, "n t"]) -> Float[Tensor, " n"]:
    """Return the negative log-probability that any correct position is chosen."""
    return -log_p.masked_fill(~right, torch.finfo(log_p.dtype).min).logsumexp(1)


paper = DPRReader(), TrainConfig(
    data="natural_questions.json", encoder="hf:bert-base-uncased", max_length=350,
    batch_size=16, epochs=10, lr=1e-5, weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "Natural Questions exact match": (41.5, "arXiv:2004.04906, table 4"),
    "SQuAD exact match, open domain": (29.8, "arXiv:2004.04906, table 4"),
}

tiny = (
    DPRReader(),
    TrainConfig(data="docstring-questions", encoder="bert-tiny", vocab_size=2048, max_length=64, steps=200, batch_size=32, lr=1e-3),
)

r"""Dense Passage Retrieval: match each question with a passage that answers it.

Claim: question and passage need no words in common. Two encoders trained only on questions and their passages
retrieve better than BM25, if each question also sees a passage that BM25 found and that does not answer it.

$$\ell_i = -\log \frac{e^{\operatorname{sim}(q_i, p_i^+)}}
{e^{\operatorname{sim}(q_i, p_i^+)} + \sum_{j} e^{\operatorname{sim}(q_i, p_{i,j}^-)}}, \quad
\operatorname{sim}(q, p) = E_Q(q)^\top E_P(p)$$

Shapes: token ids of questions (n, t), passages (n, u) and mined negatives (n, w) -> E_Q, E_P, E_P (n,
encoder.dim).

Requirements: columns named question and passage, and negative if mined negatives are available
(`nearfar.index.retrievers.mine_hard_negatives` finds them by BM25). The passages and the mined negatives of
other rows are negatives too, unless their text is the same as the row's own passage.

Relations: `simcse-sup` with two encoders instead of one, a dot product and no temperature. The loss is
InfoNCE, as in `quick-thought`, which contrasts neighboring sentences of a text. An index holds passages:
`encode` is E_P unless the tower is "question".

Reference: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020,
arXiv:2004.04906.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import info_nce
from nearfar.scores import Scores, dot
from nearfar.similarity.questions import QuestionPassagePairs


@dataclass(frozen=True)
class DPR(Recipe):
    """Dense passage retrieval for open-domain question answering."""

    card = Card(
        title="DPR",
        paper="arXiv:2004.04906",
        year=2020,
        modality="text",
        similarity="labels",
        query="question",
        positive="a passage that answers it",
        negative="a passage that BM25 found for it and that does not answer it; the batch's other passages",
        encoder="two transformers, pre-trained",
        head="none",
        score="dot product",
        loss="InfoNCE",
        equation=r"\ell_i = -\log \frac{e^{\operatorname{sim}(q_i, p_i^+)}}"
        r"{e^{\operatorname{sim}(q_i, p_i^+)} + \sum_{j} e^{\operatorname{sim}(q_i, p_{i,j}^-)}}",
        family="NCE and softmax",
        similarity_type=("labels",),
        head_type=("none",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9)}

    score: Literal["dot", "cosine"] = "dot"
    """Similarity of question and passage: dot, or cosine for sentence encoders that were trained with it."""
    temperature: float = 1.0
    """Temperature of the scores. The paper has none, which is 1. Use 0.05 with the cosine."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoders."""
    pooling: Pooling = "cls"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    def similarity(self, net: Net) -> QuestionPassagePairs:
        return QuestionPassagePairs()

    def build(self, sizes: Sizes, question, passage) -> Net:
        return Net(question=question.configure(self.pooling, self.dropout), passage=passage.configure(self.pooling, self.dropout))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z = {"q": self.encode(net, x["question"], "question"), "p": self.encode(net, x["passage"], "passage"), "same": x["same"]}
        if "negative" in x:
            z |= {"mined": self.encode(net, x["negative"], "passage"), "same_mined": x["same_negative"]}
        return z

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        passages = torch.cat([z["p"], z["mined"]]) if "mined" in z else z["p"]
        same = torch.cat([z["same"], z["same_mined"]]) if "mined" in z else z["same"]
        loss = info_nce(Scores.from_pairs(z["q"], passages, score=dot).exclude_negatives(z["same"], same) / self.temperature).mean()
        first = (z["q"].detach() @ passages.detach().T).argmax(1)
        return {"loss": loss, "accuracy": (same[first] == z["same"]).float().mean()}

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """Return vectors of questions (tower "question") or passages (any other tower).

        The default tower, "encoder", means passages, because an index holds passages.
        """
        vectors = (net.question if tower == "question" else net.passage)(x)
        return F.normalize(vectors, dim=1) if self.score == "cosine" else vectors


paper = DPR(), TrainConfig(
    data="natural_questions.jsonl", encoder="hf:bert-base-uncased", columns="passage,question,negative",
    max_length=256, batch_size=128, epochs=40, lr=1e-5, weight_decay=0.0, warmup_ratio=0.02,
)  # fmt: skip

reported = {
    "Natural Questions top-20 accuracy": (78.4, "arXiv:2004.04906, table 2; BM25 has 59.1"),
    "Natural Questions top-100 accuracy": (85.4, "arXiv:2004.04906, table 2; BM25 has 73.7"),
    "SQuAD top-20 accuracy": (63.2, "arXiv:2004.04906, table 2; BM25 has 68.8"),
    "Natural Questions exact match, with its reader": (41.5, "arXiv:2004.04906, table 4"),
}

tiny = DPR(), TrainConfig(data="docstring-questions", encoder="bag", vocab_size=2048, max_length=64, steps=200, batch_size=32, lr=3e-2)

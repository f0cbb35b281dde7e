r"""Quick-Thought: pick out a sentence's neighbors in the text among other sentences.

Claim: to learn the meaning of a sentence, an encoder need not generate the next sentence word by word, as
Skip-Thought does. Choosing the next sentence among a few candidates is enough and an order of magnitude
faster.

$$\ell_s = -\sum_{c \in C(s)} \log \frac{\exp(f(s)^\top g(c))}{\sum_{s' \neq s} \exp(f(s)^\top g(s'))}$$

Shapes: blocks of `consecutive_sentences` sentences in the order of the text (n consecutive_sentences, t) ->
f, g (n consecutive_sentences, encoder.dim), two encoders of the same shape. The candidates are all sentences
of the batch.

Requirements: texts in their original order, with document boundaries (a .txt file with an empty line between
documents). --batch-size counts blocks of sentences.

Relations: InfoNCE with two encoders and temporal neighbors as positives, as in CPC. The loss is a softmax
over candidates, not negative sampling. The two encoders keep a sentence from being its own best candidate. A
sentence is represented by the concatenation of both.

Reference: Logeswaran & Lee, "An efficient framework for learning sentence representations", ICLR 2018,
arXiv:1803.02893.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import quick_thought
from nearfar.similarity.sentences import ConsecutiveSentences


@dataclass(frozen=True)
class QuickThought(Recipe):
    """An efficient framework for learning sentence representations."""

    card = Card(
        title="Quick-Thought",
        paper="arXiv:1803.02893",
        year=2018,
        modality="text",
        similarity="sequential coherence",
        query="sentence",
        positive="a sentence next to it in the text",
        negative="the batch's other sentences",
        encoder="two GRUs, end to end",
        head="none",
        score="dot product",
        loss="InfoNCE",
        equation=r"\ell_s = -\sum_{c \in C(s)} \log \frac{\exp(f(s)^\top g(c))}{\sum_{s' \neq s} \exp(f(s)^\top g(s'))}",
        family="NCE and softmax",
        similarity_type=("sequential coherence",),
        head_type=("none",),
    )
    limits: ClassVar = {"dropout": (0.0, 0.9), "window": (1.0, 10.0), "consecutive_sentences": (2.0, 10_000.0)}

    window: int = 1
    """Number of sentences before and after that count as neighbors."""
    consecutive_sentences: int = 8
    """Number of consecutive sentences of a text in a block of the batch."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the encoders."""
    pooling: Pooling = "mean"
    """Pooling of a transformer's token vectors: cls, mean, or first-last. A GRU always uses its last
    state."""

    def similarity(self, net: Net) -> ConsecutiveSentences:
        return ConsecutiveSentences(self.consecutive_sentences)

    def build(self, sizes: Sizes, encoder, context) -> Net:
        return Net(encoder=encoder.configure(self.pooling, self.dropout), context=context.configure(self.pooling, self.dropout))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"f": net.encoder(x["texts"]), "g": net.context(x["texts"]), "passage": x["passage"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return quick_thought(z["f"], z["g"], z["passage"], self.window).mean()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return torch.cat([net.encoder(x), net.context(x)], 1) if tower == "encoder" else getattr(net, tower)(x)


paper = QuickThought(), TrainConfig(data="bookcorpus.txt", encoder="gru", vocab_size=50000, batch_size=50, epochs=1, lr=5e-4)

reported = {
    "MR accuracy, MC-QT": (82.4, "arXiv:1803.02893, table 3"),
    "SUBJ accuracy, MC-QT": (94.8, "arXiv:1803.02893, table 3"),
}

tiny = QuickThought(), TrainConfig(data="docstrings", encoder="bag", vocab_size=2048, max_length=32, steps=200, batch_size=32, lr=2e-3)

r"""Quick-Thought: a sentence finds its neighbours in the text among other sentences.

Claim: to learn what a sentence means one need not write the next one word by word, as Skip-Thought does; it is enough to pick it out
of a few candidates, and that is an order of magnitude faster.

$$\ell_s = -\sum_{c \in C(s)} \log \frac{\exp(f(s)^\top g(c))}{\sum_{s' \neq s} \exp(f(s)^\top g(s'))}$$

Shapes: runs of `span` sentences in the order of the text (n span, t) -> f, g (n span, encoder.dim), two encoders of one shape;
the candidates are all sentences of the batch.

Requirements: texts in their order, with the boundaries of documents (a .txt with an empty line between documents). --batch-size counts
runs of sentences.

Relations: InfoNCE with two encoders and neighbours in time as positives, as CPC has them; a softmax over candidates, not negative
sampling. The two encoders keep a sentence from being its own best candidate; a sentence is represented by both, one behind the other.

Reference: Logeswaran & Lee, "An efficient framework for learning sentence representations", ICLR 2018, arXiv:1803.02893.
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
    )
    limits: ClassVar = {"dropout": (0.0, 0.9), "window": (1.0, 10.0), "consecutive_sentences": (2.0, 10_000.0)}

    window: int = 1
    """How many sentences before and behind are neighbours."""
    consecutive_sentences: int = 8
    """How many sentences of a text stand together in a batch."""
    dropout: float = 0.1
    """Share of values that every dropout layer of the encoders drops."""
    pooling: Pooling = "mean"
    """How a transformer's token vectors become a sentence's; a GRU's are its last state."""

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

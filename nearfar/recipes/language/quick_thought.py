r"""Quick-Thought: a sentence finds its neighbours in the text among other sentences.

Claim: to learn what a sentence means one need not write the next one word by word, as Skip-Thought does; it is enough to pick it out
of a few candidates, and that is an order of magnitude faster.

$$\ell_s = -\sum_{c \in C(s)} \log \frac{\exp(f(s)^\top g(c))}{\sum_{s' \neq s} \exp(f(s)^\top g(s'))}$$

Shapes: runs of `span` sentences in the order of the text (n span, t) -> f, g (n span, encoder.dim), two encoders of one shape;
the candidates are all sentences of the batch.

Requirements: texts in their order, with the boundaries of documents (a .txt with an empty line between documents). --batch counts
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

from nearfar.core import Card, Embedded, Key, Net, Recipe, Run, Sizes, Views
from nearfar.encoders import Pool
from nearfar.losses import quick_thought
from nearfar.similarity.sentences import Consecutive


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
    limits: ClassVar = {"dropout": (0.0, 0.9), "window": (1.0, 10.0), "span": (2.0, 10_000.0)}

    window: int = 1
    """How many sentences before and behind are neighbours."""
    span: int = 8
    """How many sentences of a text stand together in a batch."""
    dropout: float = 0.1
    """Share of values that every dropout layer of the encoders drops."""
    pool: Pool = "mean"
    """How a transformer's token vectors become a sentence's; a GRU's are its last state."""

    def similarity(self, net: Net) -> Consecutive:
        return Consecutive(self.span)

    def build(self, sizes: Sizes, encoder, context) -> Net:
        return Net(encoder=encoder.set(self.pool, self.dropout), context=context.set(self.pool, self.dropout))

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        return {"f": net.encoder(x["texts"]), "g": net.context(x["texts"]), "passage": x["passage"]}

    def objective(self, net: Net, z: Embedded, key: Key) -> Tensor:
        return quick_thought(z["f"], z["g"], z["passage"], self.window).mean()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        return torch.cat([net.encoder(x), net.context(x)], 1) if tower == "encoder" else getattr(net, tower)(x)


paper = QuickThought(), Run(data="bookcorpus.txt", encoder="gru", vocabulary=50000, batch=50, epochs=1, lr=5e-4)

reported = {
    "MR accuracy, MC-QT": (82.4, "arXiv:1803.02893, table 3"),
    "SUBJ accuracy, MC-QT": (94.8, "arXiv:1803.02893, table 3"),
}

tiny = QuickThought(), Run(data="docstrings", encoder="bag", vocabulary=2048, length=32, steps=200, batch=32, lr=2e-3)

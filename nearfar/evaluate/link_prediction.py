r"""Link prediction: of all entities, at which place stands the one that makes (?, r, t) or (h, r, ?) true?

Ranks are *filtered*: other entities that make the triple true as well are no mistakes and are left out. Ties are *realistic*: the mean
of the best and the worst place among equals, so that a model which scores all alike gets the rank of chance and not the first.

Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013; for ties, Berrendorf et al., On the
Ambiguity of Rank-Based Evaluation of Entity Alignment or Link Prediction Methods, arXiv:2002.06914.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.evaluate.input_checks import as_features

HEAD, TAIL = 0, 2
"""Columns of a triple, and the names of the two questions that can be asked about it."""
CELLS = 1 << 24
"""Scores that are held at a time."""

Score = Callable[[Int[Tensor, "b 3"], int], Float[Tensor, "b e"]]
"""Of some triples and the side that is asked for: how well every entity fits there. Larger is better."""


@dataclass(frozen=True)
class LinkPrediction:
    """Means over both sides of all triples."""

    mrr: float
    hits1: float
    hits3: float
    hits10: float
    mean_rank: float
    triples: int


def link_prediction(
    score: Score, triples: Int[Tensor, "n 3"], known: Int[Tensor, "m 3"], entities: int, progress: Callable[[int, int], None] | None = None
) -> LinkPrediction:
    """`known`: everything that is true, of all splits, the asked triples included or not."""
    ranks = filtered_ranks(score, triples, known, entities, progress).double()
    hits1, hits3, hits10 = (float((ranks <= k).double().mean()) for k in (1, 3, 10))
    return LinkPrediction(float(ranks.reciprocal().mean()), hits1, hits3, hits10, float(ranks.mean()), len(triples))


@torch.no_grad()
def filtered_ranks(
    score: Score, triples: Int[Tensor, "n 3"], known: Int[Tensor, "m 3"], entities: int, progress: Callable[[int, int], None] | None = None
) -> Float[Tensor, "n 2"]:
    """The ranks of each triple's head and of its tail, from 1; halves where an even number is tied."""
    found = torch.empty(len(triples), 2, device=triples.device)
    block = max(1, CELLS // max(entities, 1))
    for column, side in enumerate((HEAD, TAIL)):
        answers = Answers(known, side)
        for start in range(0, len(triples), block):
            part = triples[start : start + block]
            scores = as_features(score(part, side), "scores of entities")  # NaN is neither better nor worse: it would be first
            found[start : start + block, column] = _ranks(scores, part[:, side], *answers.of(part))
            if progress:
                progress(column * len(triples) + start + len(part), 2 * len(triples))
    return found


def _ranks(
    scores: Float[Tensor, "b e"], asked: Int[Tensor, " b"], row: Int[Tensor, " a"], entity: Int[Tensor, " a"]
) -> Float[Tensor, " b"]:
    """1 + those that are better + half of those that are equal, after known answers (pairs of row and entity) are taken out."""
    own = scores.gather(1, asked[:, None])
    better, equal = (scores > own).sum(1), (scores == own).sum(1)
    rival, bar = scores[row, entity], own[row, 0]
    better = better.index_add(0, row, -(rival > bar).long())
    equal = equal.index_add(0, row, -(rival == bar).long())  # the asked one itself among them: it is known, or taken out as such
    return 1 + better + equal / 2


class Answers:
    """The known answers to questions, found by bisection in a sorted list."""

    def __init__(self, known: Int[Tensor, "m 3"], side: int):
        self.side = side
        self.given = 2 - side
        """The column that a question gives beside the relation."""
        self.width = int(known.max()) + 1 if len(known) else 1
        known = known.unique(dim=0)
        order = self._question(known).argsort(stable=True)
        self.question, self.entity = self._question(known)[order], known[order, side]

    def _question(self, triples: Int[Tensor, "n 3"]) -> Int[Tensor, " n"]:
        return triples[:, 1] * self.width + triples[:, self.given]

    def of(self, asked: Int[Tensor, "b 3"]) -> tuple[Int[Tensor, " a"], Int[Tensor, " a"]]:
        """Pairs (row of `asked`, entity) that are true; the asked entity itself is always among them, exactly once."""
        question = self._question(asked)
        known = (asked[:, [1, self.given]] < self.width).all(1)
        low, high = (torch.searchsorted(self.question, question, right=right) for right in (False, True))
        count = torch.where(known, high - low, 0)
        row = torch.arange(len(asked), device=asked.device).repeat_interleave(count)
        first = count.cumsum(0) - count
        place = low[row] + torch.arange(len(row), device=asked.device) - first[row]
        entity = self.entity[place]
        others: Bool[Tensor, " a"] = entity != asked[row, self.side]
        own = torch.arange(len(asked), device=asked.device)
        return torch.cat([row[others], own]), torch.cat([entity[others], asked[:, self.side]])


def frequency(train: Int[Tensor, "m 3"], entities: int, relations: int) -> Score:
    """The simplest model: how often an entity stands on that side of that relation in the training triples."""
    counts = {}
    for side in (HEAD, TAIL):
        cell = train[:, 1] * entities + train[:, side]
        counts[side] = torch.bincount(cell, minlength=relations * entities).view(relations, entities).float()
    return lambda triples, side: counts[side][triples[:, 1]]

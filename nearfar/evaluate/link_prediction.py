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

from nearfar.evaluate.input_checks import check_features

HEAD, TAIL = 0, 2
"""Columns of a triple, and the names of the two questions that can be asked about it."""
SCORES_PER_BLOCK = 1 << 24
"""Scores that are held at a time."""

TripleScorer = Callable[[Int[Tensor, "b 3"], int], Float[Tensor, "b e"]]
"""Of some triples and the side that is asked for: how well every entity fits there. Larger is better."""


@dataclass(frozen=True)
class LinkPredictionResult:
    """Means over both sides of all triples."""

    mrr: float
    hits1: float
    hits3: float
    hits10: float
    mean_rank: float
    num_triples: int


def evaluate_link_prediction(
    score: TripleScorer,
    triples: Int[Tensor, "n 3"],
    known_triples: Int[Tensor, "m 3"],
    num_entities: int,
    progress: Callable[[int, int], None] | None = None,
) -> LinkPredictionResult:
    """`known`: everything that is true, of all splits, the asked triples included or not."""
    ranks = compute_filtered_ranks(score, triples, known_triples, num_entities, progress).double()
    hits1, hits3, hits10 = (float((ranks <= k).double().mean()) for k in (1, 3, 10))
    return LinkPredictionResult(float(ranks.reciprocal().mean()), hits1, hits3, hits10, float(ranks.mean()), len(triples))


@torch.no_grad()
def compute_filtered_ranks(
    score: TripleScorer,
    triples: Int[Tensor, "n 3"],
    known_triples: Int[Tensor, "m 3"],
    num_entities: int,
    progress: Callable[[int, int], None] | None = None,
) -> Float[Tensor, "n 2"]:
    """The ranks of each triple's head and of its tail, from 1; halves where an even number is tied."""
    found = torch.empty(len(triples), 2, device=triples.device)
    block = max(1, SCORES_PER_BLOCK // max(num_entities, 1))
    for column, side in enumerate((HEAD, TAIL)):
        answers = KnownAnswers(known_triples, side)
        for start in range(0, len(triples), block):
            part = triples[start : start + block]
            scores = check_features(score(part, side), "scores of entities")  # NaN is neither better nor worse: it would be first
            found[start : start + block, column] = _compute_ranks(scores, part[:, side], *answers.find(part))
            if progress:
                progress(column * len(triples) + start + len(part), 2 * len(triples))
    return found


def _compute_ranks(
    scores: Float[Tensor, "b e"], asked: Int[Tensor, " b"], row: Int[Tensor, " a"], entity: Int[Tensor, " a"]
) -> Float[Tensor, " b"]:
    """1 + those that are better + half of those that are equal, after known answers (pairs of row and entity) are taken out."""
    own = scores.gather(1, asked[:, None])
    better, equal = (scores > own).sum(1), (scores == own).sum(1)
    rival, bar = scores[row, entity], own[row, 0]
    better = better.index_add(0, row, -(rival > bar).long())
    equal = equal.index_add(0, row, -(rival == bar).long())  # the asked one itself among them: it is known, or taken out as such
    return 1 + better + equal / 2


class KnownAnswers:
    """The known answers to questions, found by bisection in a sorted list."""

    def __init__(self, known_triples: Int[Tensor, "m 3"], side: int):
        self.side = side
        self.given_side = 2 - side
        """The column that a question gives beside the relation."""
        self.num_ids = int(known_triples.max()) + 1 if len(known_triples) else 1
        known_triples = known_triples.unique(dim=0)
        order = self._question(known_triples).argsort(stable=True)
        self.questions, self.entities = self._question(known_triples)[order], known_triples[order, side]

    def _question(self, triples: Int[Tensor, "n 3"]) -> Int[Tensor, " n"]:
        return triples[:, 1] * self.num_ids + triples[:, self.given_side]

    def find(self, triples: Int[Tensor, "b 3"]) -> tuple[Int[Tensor, " a"], Int[Tensor, " a"]]:
        """Pairs (row of `asked`, entity) that are true; the asked entity itself is always among them, exactly once."""
        question = self._question(triples)
        known = (triples[:, [1, self.given_side]] < self.num_ids).all(1)
        low, high = (torch.searchsorted(self.questions, question, right=right) for right in (False, True))
        count = torch.where(known, high - low, 0)
        row = torch.arange(len(triples), device=triples.device).repeat_interleave(count)
        first = count.cumsum(0) - count
        place = low[row] + torch.arange(len(row), device=triples.device) - first[row]
        entity = self.entities[place]
        others: Bool[Tensor, " a"] = entity != triples[row, self.side]
        own = torch.arange(len(triples), device=triples.device)
        return torch.cat([row[others], own]), torch.cat([entity[others], triples[:, self.side]])


def build_frequency_baseline(train_triples: Int[Tensor, "m 3"], num_entities: int, num_relations: int) -> TripleScorer:
    """The simplest model: how often an entity stands on that side of that relation in the training triples."""
    counts = {}
    for side in (HEAD, TAIL):
        cell = train_triples[:, 1] * num_entities + train_triples[:, side]
        counts[side] = torch.bincount(cell, minlength=num_relations * num_entities).view(num_relations, num_entities).float()
    return lambda triples, side: counts[side][triples[:, 1]]

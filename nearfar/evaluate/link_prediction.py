"""Link prediction: rank of the correct entity for (?, r, t) and (h, r, ?).

Ranks are *filtered*: other entities that also make the triple true are not mistakes and are left out. Ties
are *realistic*: a tied entity gets the mean of the best and the worst rank among its equals. A model with
equal scores for all entities therefore gets the rank of chance, and not the first rank.

Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013; for ties,
Berrendorf et al., On the Ambiguity of Rank-Based Evaluation of Entity Alignment or Link Prediction Methods,
arXiv:2002.06914.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.evaluate.input_checks import check_features

HEAD, TAIL = 0, 2
"""Columns of a triple, and names of the two sides that can be predicted."""
SCORES_PER_BLOCK = 1 << 24
"""Number of scores that are held in memory at once."""

TripleScorer = Callable[[Int[Tensor, "b 3"], int], Float[Tensor, "b e"]]
"""Function that scores every entity for the predicted side of each triple.

The arguments are triples (b, 3) and the side (`HEAD` or `TAIL`). The scores have the shape (b, e), and larger
is better.
"""


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
    """Compute MRR, hits@k and the mean rank.

    They are means over both sides of all triples.

    Args:
        score: Function that scores all entities for some triples and a side.
        triples: Triples to evaluate (n, 3).
        known_triples: All true triples of all splits (m, 3). They may include the evaluated ones.
        num_entities: Number of entities.
        progress: Function called with the number of finished and of all rankings.
    """
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
    """Compute the filtered ranks of head and tail of each triple.

    Ranks begin at 1. A rank ends in one half where an even number of entities is tied. The arguments are
    those of `evaluate_link_prediction`. The result has the shape (n, 2).
    """
    found = torch.empty(len(triples), 2, device=triples.device)
    block = max(1, SCORES_PER_BLOCK // max(num_entities, 1))
    for column, side in enumerate((HEAD, TAIL)):
        answers = KnownAnswers(known_triples, side)
        for start in range(0, len(triples), block):
            part = triples[start : start + block]
            # NaN compares as neither better nor worse, so it would rank first.
            scores = check_features(score(part, side), "scores of entities")
            found[start : start + block, column] = _compute_ranks(scores, part[:, side], *answers.find(part))
            if progress:
                progress(column * len(triples) + start + len(part), 2 * len(triples))
    return found


def _compute_ranks(
    scores: Float[Tensor, "b e"], asked: Int[Tensor, " b"], row: Int[Tensor, " a"], entity: Int[Tensor, " a"]
) -> Float[Tensor, " b"]:
    """Compute the ranks of the correct entities.

    A rank is 1 + the number of better entities + half the number of other tied ones. Known answers (pairs of
    row and entity) are excluded first.
    """
    own = scores.gather(1, asked[:, None])
    better, equal = (scores > own).sum(1), (scores == own).sum(1)
    rival, bar = scores[row, entity], own[row, 0]
    better = better.index_add(0, row, -(rival > bar).long())
    # Includes the predicted entity itself, which is always a known answer.
    equal = equal.index_add(0, row, -(rival == bar).long())
    return 1 + better + equal / 2


class KnownAnswers:
    """Known answers to queries (?, r, t) or (h, r, ?).

    A binary search finds them in a sorted list.
    """

    def __init__(self, known_triples: Int[Tensor, "m 3"], side: int):
        self.side = side
        self.given_side = 2 - side
        """Column that a query contains in addition to the relation."""
        self.num_ids = int(known_triples.max()) + 1 if len(known_triples) else 1
        known_triples = known_triples.unique(dim=0)
        order = self._question(known_triples).argsort(stable=True)
        self.questions, self.entities = self._question(known_triples)[order], known_triples[order, side]

    def _question(self, triples: Int[Tensor, "n 3"]) -> Int[Tensor, " n"]:
        return triples[:, 1] * self.num_ids + triples[:, self.given_side]

    def find(self, triples: Int[Tensor, "b 3"]) -> tuple[Int[Tensor, " a"], Int[Tensor, " a"]]:
        """Return the true pairs (row of `triples`, entity).

        The entity of the triple itself is always among them, exactly once.
        """
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
    """Build a baseline that scores entities by their frequency.

    The frequency counts how often an entity is on that side of that relation in the training triples.
    """
    counts = {}
    for side in (HEAD, TAIL):
        cell = train_triples[:, 1] * num_entities + train_triples[:, side]
        counts[side] = torch.bincount(cell, minlength=num_relations * num_entities).view(num_relations, num_entities).float()
    return lambda triples, side: counts[side][triples[:, 1]]

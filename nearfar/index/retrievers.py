"""One way to ask, whatever finds the passages: words (BM25), vectors, or both.

    Lexical(build_bm25(passages)).search(["who wrote it?"], k=10)      -> Hits: scores and rows, the best first
    Dense(trained, index)                                              a question through its tower, passages from an index
    Hybrid(lexical, dense, weight=0.5)                                 both lists, fused

Larger scores are better, always.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from nearfar.core import NearfarError, UsageError
from nearfar.data.questions.dataset import Questions
from nearfar.evaluate.retrieval import reciprocal_rank
from nearfar.index.base_index import Hits, Index
from nearfar.index.bm25 import BM25
from nearfar.train.encode import encode_all
from nearfar.train.model import Model

FUSION_DEPTH = 100
"""Passages that each retriever hands to a fusion."""
RANK_OFFSET = 60
"""Of reciprocal rank fusion: how little the first ranks differ (Cormack, Clarke & Büttcher, SIGIR 2009)."""


class Retriever(ABC):
    """Finds passages for questions."""

    @abstractmethod
    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """The k best passages of each question, the best first."""


@dataclass(frozen=True, eq=False)
class LexicalRetriever(Retriever):
    """By the words that question and passage have in common. `rows`: the number of each passage, if they are not 0, 1, 2, …"""

    bm25: BM25
    row_numbers: Int64[np.ndarray, " p"] | None = None

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        hits = self.bm25.search(questions, k)
        return hits if self.row_numbers is None else Hits(hits.scores, self.row_numbers[hits.rows])


@dataclass(frozen=True, eq=False)
class DenseRetriever(Retriever):
    """By vectors: of questions from the run's question tower (its encoder, where it has one tower), of passages from the index."""

    model: Model
    index: Index

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        hits = self.index.search(encode_questions(self.model, questions).numpy(), k)
        return Hits(-hits.scores, hits.rows) if self.index.metric == "l2" else hits


@dataclass(frozen=True, eq=False)
class HybridRetriever(Retriever):
    """Two retrievers over the same rows, fused.

    weight   share of the second retriever in the sum of standardised scores; None: reciprocal rank fusion, which has none
    """

    first: Retriever
    second: Retriever
    weight: float | None = 0.5

    def __post_init__(self):
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise UsageError(f"the weight of a hybrid search is between 0 (words only) and 1 (vectors only), got {self.weight}")

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        depth = max(k, FUSION_DEPTH)
        return fuse(self.first.search(questions, depth), self.second.search(questions, depth), self.weight, k)


def encode_questions(model: Model, questions: Sequence[str]) -> Float[Tensor, "q d"]:
    (texts,) = model.inputs.adapt(list(questions))
    tower = "question" if hasattr(model.net, "question") else "encoder"
    return encode_all(model.recipe, model.net, texts, model.device, batch_size=64, tower=tower)


def fuse(first: Hits, second: Hits, weight: float | None, k: int) -> Hits:
    """One list a question out of two. A passage that only one of them found counts in the other as if it were the last there.

    With a weight w: (1 - w) z_1 + w z_2, z the scores of a list, standardised; without: 1 / (60 + rank_1) + 1 / (60 + rank_2).
    """
    parts = [_score_by_rank(hits) if weight is None else _standardize_scores(hits.scores) for hits in (first, second)]
    shares = (1.0, 1.0) if weight is None else (1 - weight, weight)
    found = [np.union1d(a, b) for a, b in zip(first.rows, second.rows, strict=True)]
    k = min(k, *(len(rows) for rows in found)) if found else k
    scores, rows = np.zeros((len(found), k), dtype=np.float32), np.zeros((len(found), k), dtype=np.int64)
    for i, union in enumerate(found):
        total = np.zeros(len(union), dtype=np.float32)
        for hits, part, share in zip((first, second), parts, shares, strict=True):
            values = np.full(len(union), part[i].min(), dtype=np.float32)
            values[np.searchsorted(union, hits.rows[i])] = part[i]
            total += share * values
        best = np.argsort(-total, kind="stable")[:k]
        rows[i], scores[i] = union[best], total[best]
    return Hits(scores, rows)


def _score_by_rank(hits: Hits) -> Float32[np.ndarray, "q k"]:
    ranks = np.arange(1, hits.rows.shape[1] + 1)
    return np.broadcast_to(1 / (RANK_OFFSET + ranks), hits.rows.shape).astype(np.float32)


def _standardize_scores(scores: Float32[np.ndarray, "q k"]) -> Float32[np.ndarray, "q k"]:
    _require_finite_scores(scores, "scores to be fused")
    spread = scores.std(1, keepdims=True)
    return (scores - scores.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1)


def choose_hybrid_weight(first: Hits, second: Hits, questions: Questions, grid_steps: int = 20) -> float:
    """The weight of a hybrid with the best mean reciprocal rank on these questions; of equal ones the nearest to one half.

    They must be questions that the dense retriever was not trained on: on its own training questions it looks better than it is.
    """
    tried = sorted(np.linspace(0, 1, grid_steps + 1).tolist(), key=lambda w: abs(w - 0.5))
    depth = max(first.rows.shape[1], second.rows.shape[1])

    def measured(weight: float) -> float:
        rows = fuse(first, second, weight, depth).rows
        return float(reciprocal_rank(torch.from_numpy(questions.is_gold(rows))).mean())

    return max(tried, key=measured)


def mine_hard_negatives(questions: Questions, retriever: Retriever, per_question: int = 1, depth: int = 50) -> list[tuple[int, ...]]:
    """For each question the `count` best passages that do not answer it: neither marked as gold nor holding an accepted answer.

    For `Questions.pairs`. The retriever must be one over the corpus of these questions.
    """
    hits = retriever.search(questions.questions, min(depth, len(questions.passages)))
    lowered = [text.lower() for text in questions.passages]
    found = []
    for rows, gold, answers in zip(hits.rows, questions.gold, questions.answers, strict=True):
        said = [answer.lower() for answer in answers]
        wrong = (int(row) for row in rows if row not in gold and not any(a in lowered[row] for a in said))
        found.append(tuple(row for row, _ in zip(wrong, range(per_question), strict=False)))
    return found


def rank_candidates(candidates: Sequence[Sequence[int]], scores: Float[np.ndarray, "q p"]) -> Int64[np.ndarray, "q k"]:
    """Each question's own candidates in the order of their scores, filled up with -1: a search within lists that somebody judged."""
    width = max((len(rows) for rows in candidates), default=0)
    ranked = np.full((len(candidates), width), -1, dtype=np.int64)
    for i, rows in enumerate(candidates):
        own = np.array(rows, dtype=np.int64)
        _require_finite_scores(scores[i : i + 1, own], "scores of candidates", first=i)
        ranked[i, : len(own)] = own[np.argsort(-scores[i, own], kind="stable")]
    return ranked


def _require_finite_scores(scores: Float[np.ndarray, "q k"], name: str, first: int = 0) -> None:
    """NaN has no place in an order. `first`: the number of the first question."""
    broken = np.flatnonzero(~np.isfinite(scores).all(1))
    if broken.size:
        raise NearfarError(f"{name}: question {first + broken[0]} has NaN or infinity among its scores. Did the training diverge?")

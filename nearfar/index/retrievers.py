"""Retrievers with one interface: words (BM25), vectors, or both.

    LexicalRetriever(build_bm25(passages))         by words
    DenseRetriever(model, index)                   by vectors: questions by the model, passages by the index
    HybridRetriever(lexical, dense, weight=0.5)    both lists, fused

`retriever.search(["who wrote it?"], k=10)` returns `Hits`: scores and rows, the best first.

Larger scores are always better.
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
"""Number of passages of each retriever that are fused."""
RANK_OFFSET = 60
"""Offset of reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009).

With a larger offset, the first ranks differ less.
"""


class Retriever(ABC):
    """Interface of retrievers, which find passages for questions."""

    @abstractmethod
    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question, the best first."""


@dataclass(frozen=True, eq=False)
class LexicalRetriever(Retriever):
    """Retriever by the words that question and passage share.

    `row_numbers` holds the row of each passage, if the rows are not 0, 1, 2, …
    """

    bm25: BM25
    row_numbers: Int64[np.ndarray, " p"] | None = None

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question, the best first."""
        hits = self.bm25.search(questions, k)
        return hits if self.row_numbers is None else Hits(hits.scores, self.row_numbers[hits.rows])


@dataclass(frozen=True, eq=False)
class DenseRetriever(Retriever):
    """Retriever by vectors.

    The question encoder of the model encodes the questions. A model without one uses its encoder. The
    passages come from the index.
    """

    model: Model
    index: Index

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question, the best first."""
        hits = self.index.search(encode_questions(self.model, questions).numpy(), k)
        return Hits(-hits.scores, hits.rows) if self.index.metric == "l2" else hits


@dataclass(frozen=True, eq=False)
class HybridRetriever(Retriever):
    """Fusion of two retrievers over the same rows.

    `weight` is the weight of the second retriever in the sum of standardized scores. None selects reciprocal
    rank fusion, which has no weight.
    """

    first: Retriever
    second: Retriever
    weight: float | None = 0.5

    def __post_init__(self):
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise UsageError(f"the weight of a hybrid search must be between 0 (words only) and 1 (vectors only), got {self.weight}")

    def search(self, questions: Sequence[str], k: int = 10) -> Hits:
        """Return the k best passages of each question, the best first."""
        depth = max(k, FUSION_DEPTH)
        return fuse(self.first.search(questions, depth), self.second.search(questions, depth), self.weight, k)


def encode_questions(model: Model, questions: Sequence[str]) -> Float[Tensor, "q d"]:
    """Encode questions with the question encoder, or the only encoder, of a model."""
    (texts,) = model.inputs.adapt(list(questions))
    tower = "question" if hasattr(model.net, "question") else "encoder"
    return encode_all(model.recipe, model.net, texts, model.device, batch_size=64, tower=tower)


def fuse(first: Hits, second: Hits, weight: float | None, k: int) -> Hits:
    """Fuse two lists of passages for each question into one.

    With a weight w, the score is (1 - w) z_1 + w z_2, where z are the standardized scores of a list. Without
    a weight, the score is 1 / (60 + rank_1) + 1 / (60 + rank_2). A passage in only one list gets the last
    score of the other list.

    Args:
        first: Hits of the first retriever.
        second: Hits of the second retriever.
        weight: Weight of the second retriever, None for reciprocal rank fusion.
        k: Number of passages per question in the result.
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
    """Choose the hybrid weight with the best mean reciprocal rank.

    Ties go to the weight nearest to one half. Use questions that the dense retriever was not trained on: its
    scores on training questions are too good.

    Args:
        first: Hits of the lexical retriever.
        second: Hits of the dense retriever.
        questions: Questions with their correct passages.
        grid_steps: Number of steps of the grid from 0 to 1.
    """
    tried = sorted(np.linspace(0, 1, grid_steps + 1).tolist(), key=lambda w: abs(w - 0.5))
    depth = max(first.rows.shape[1], second.rows.shape[1])

    def measured(weight: float) -> float:
        rows = fuse(first, second, weight, depth).rows
        return float(reciprocal_rank(torch.from_numpy(questions.is_gold(rows))).mean())

    return max(tried, key=measured)


def mine_hard_negatives(questions: Questions, retriever: Retriever, per_question: int = 1, depth: int = 50) -> list[tuple[int, ...]]:
    """Mine the `per_question` best passages that do not answer each question.

    A negative is neither marked as gold nor contains an accepted answer. The result is for `Questions.pairs`.
    The retriever must search the corpus of these questions.
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
    """Rank the candidates of each question by their scores.

    Use it to search within judged lists of candidates.

    Args:
        candidates: Passages of each question.
        scores: Scores of all passages (q, p).

    Returns:
        Ranked candidates (q, k), padded with -1.
    """
    width = max((len(rows) for rows in candidates), default=0)
    ranked = np.full((len(candidates), width), -1, dtype=np.int64)
    for i, rows in enumerate(candidates):
        own = np.array(rows, dtype=np.int64)
        _require_finite_scores(scores[i : i + 1, own], "scores of candidates", first=i)
        ranked[i, : len(own)] = own[np.argsort(-scores[i, own], kind="stable")]
    return ranked


def _require_finite_scores(scores: Float[np.ndarray, "q k"], name: str, first: int = 0) -> None:
    """Raise an error for NaN or infinite scores, which have no rank.

    `first` is the number of the first question.
    """
    broken = np.flatnonzero(~np.isfinite(scores).all(1))
    if broken.size:
        raise NearfarError(f"{name}: question {first + broken[0]} has NaN or infinity among its scores. Did the training diverge?")

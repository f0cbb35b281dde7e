"""Evaluation of question encoders: retrieval by BM25, by untrained and by trained towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.core.errors import MissingExtra
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits, Texts
from nearfar.data.questions.dataset import Questions
from nearfar.evaluate import ResultTable
from nearfar.evaluate.retrieval import summarize_retrieval
from nearfar.index.bm25 import build_bm25
from nearfar.index.index_factory import build_index
from nearfar.index.retrievers import DenseRetriever, LexicalRetriever, Retriever
from nearfar.modalities.embedding_tables import build_protocol, build_result_row
from nearfar.similarity.questions import find_column
from nearfar.train.model import Model

PASSAGES_PER_QUESTION = 100
"""Number of passages that are retrieved for each question."""
RETRIEVAL_TITLES = {"top1": "top-1", "top5": "top-5", "top20": "top-20"}
RETRIEVAL_NOTES = [
    "Retrieval, in per cent: each of {n:,} test questions looks for a passage that is marked as answering it among all {passages:,} of the "
    "data, those of the training split and mined negatives included; {seen:,} of the questions have one that was trained on, as the answer "
    f"to another question or as a negative. MRR: within the first {PASSAGES_PER_QUESTION}.",
    "BM25: Lucene's, by the words that question and passage share.",
]
NO_BM25_NOTE = "BM25 is left out, the baseline that matters most here: pip install 'nearfar[search]'."


def has_question_and_passage_towers(model: Model) -> bool:
    """Return True if the model has separate towers for questions and passages."""
    return hasattr(model.net, "question") and hasattr(model.net, "passage")


def evaluate_question_retrieval(trained: Model, splits: Splits, train_samples: Texts, progress: ProgressCallback | None) -> Evaluation:
    """Evaluate a model with question and passage towers and return the result table.

    `train_samples` are the training rows in which a report looks for neighbors.
    """
    train, test = splits.train, splits.test
    if test is None:
        raise UsageError(f"{train.source} has no test split and is too small to draw one: nothing to evaluate on")
    asked = build_questions(train, test, RandomKey(trained.config.seed)("evaluate", "corpus"))
    before = "towers before training" if trained.config.encoder.startswith("hf:") else "untrained towers"
    models = {before: trained.build_untrained(), "trained towers": trained}
    vectors = {name: model.encode(list(asked.passages), progress=progress) for name, model in models.items()}
    rivals: dict[str, Retriever] = {
        name: DenseRetriever(model, build_index(vectors[name], None, None, metric="dot", index_type="exact"))
        for name, model in models.items()
    }
    notes = [line.format(n=len(asked), passages=len(asked.passages), seen=_count_seen_questions(asked, train)) for line in RETRIEVAL_NOTES]
    try:
        rivals = {"BM25": LexicalRetriever(build_bm25(asked.passages)), **rivals}
    except MissingExtra:
        notes[1] = NO_BM25_NOTE
    results = [
        build_result_row(name, name != "trained towers", vectors.get(name), **score_retriever(asked, rival))
        for name, rival in rivals.items()
    ]
    table = ResultTable(
        results, build_protocol(trained, notes, accuracies=RETRIEVAL_TITLES, questions=len(asked), passages=len(asked.passages))
    )
    among, shown = (_find_passage_positions(asked, part) for part in (train_samples, test))
    after = vectors["trained towers"]
    return Evaluation(table, splits, train_samples, after[among], after[shown], untrained_features=vectors[before][shown])


def build_questions(train: Texts, test: Texts, rng_key: RandomKey) -> Questions:
    """Build the questions of the test split over all passages of the data.

    Equal texts are one passage. A passage that answers a question in any row counts as correct. If scores are
    equal, a search returns the first passage. Passages are therefore in random order, so that no split comes
    first.
    """
    texts = list(dict.fromkeys(text for part in (train, test) for role in ("passage", "negative") for text in get_role_texts(part, role)))
    passages = {texts[i]: place for place, i in enumerate(rng_key.permutation(len(texts)))}
    gold: dict[str, dict[int, None]] = {question: {} for question in get_role_texts(test, "question")}
    for part in (train, test):
        for question, passage in zip(get_role_texts(part, "question"), get_role_texts(part, "passage"), strict=True):
            if question in gold:
                gold[question][passages[passage]] = None
    none = ((),) * len(gold)
    rows = tuple(tuple(found) for found in gold.values())
    return Questions(tuple(gold), tuple(passages), rows, none, none, np.zeros(len(passages), dtype=np.int64), source=test.source)


def score_retriever(questions: Questions, retriever: Retriever) -> dict[str, float]:
    """Return the scores of one retriever by column."""
    hits = retriever.search(questions.questions, min(PASSAGES_PER_QUESTION, len(questions.passages)))
    relevant = torch.tensor([len(rows) for rows in questions.gold])
    found = summarize_retrieval(torch.from_numpy(questions.is_gold(hits.rows)), relevant)
    return {key: found[name] for key, name in (RETRIEVAL_TITLES | {"mrr": "MRR"}).items() if name in found}


def _count_seen_questions(questions: Questions, train: Texts) -> int:
    """Count the questions with an answering passage that was seen in training.

    Such a passage was a positive or a negative of another question.
    """
    known = {*get_role_texts(train, "passage"), *get_role_texts(train, "negative")}
    return sum(any(questions.passages[place] in known for place in rows) for rows in questions.gold)


def _find_passage_positions(questions: Questions, part: Texts) -> Tensor:
    """Return the position of each row's passage in the corpus."""
    places = {text: i for i, text in enumerate(questions.passages)}
    return torch.tensor([places[text] for text in get_role_texts(part, "passage")])


def get_role_texts(part: Any, role: str) -> Sequence[str]:
    """Return the texts of a role, one per row.

    The result is empty if the data have no such column.
    """
    name = find_column(part, role)
    return [] if name is None else part.get_strings(column=name)

"""Questions are measured by what they find: the passages of the data, ranked by BM25, by untrained towers and by the trained ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.core import Key, UsageError
from nearfar.core.errors import MissingExtra
from nearfar.data import Splits, Texts
from nearfar.data.questions.dataset import Questions
from nearfar.evaluate import Table
from nearfar.evaluate.retrieval import summary
from nearfar.index.bm25 import build_bm25
from nearfar.index.build import build
from nearfar.index.retrievers import Dense, Lexical, Retriever
from nearfar.modalities.interface import Evaluation, Progress
from nearfar.modalities.named_rows import protocol, row
from nearfar.similarity.questions import column
from nearfar.train.model import Trained

DEPTH = 100
"""Passages that each question is answered with."""
TITLES = {"top1": "top-1", "top5": "top-5", "top20": "top-20"}
NOTES = [
    "Retrieval, in per cent: each of {n:,} test questions looks for a passage that is marked as answering it among all {passages:,} of the "
    "data, those of the training split and mined negatives included; {seen:,} of the questions have one that was trained on, as the answer "
    f"to another question or as a negative. MRR: within the first {DEPTH}.",
    "BM25: Lucene's, by the words that question and passage share.",
]
NO_BM25 = "BM25 is left out, the baseline that matters most here: pip install 'nearfar[search]'."


def has_towers(trained: Trained) -> bool:
    return hasattr(trained.net, "question") and hasattr(trained.net, "passage")


def retrieval(trained: Trained, splits: Splits, chosen: Texts, progress: Progress | None) -> Evaluation:
    """The table of a run with towers for questions and passages. `chosen`: the training rows that a report looks for neighbours in."""
    train, test = splits.train, splits.test
    if test is None:
        raise UsageError(f"{train.source} has no test split and is too small to draw one: nothing to evaluate on")
    asked = questions_of(train, test, Key(trained.run.seed)("evaluate", "corpus"))
    before = "towers before training" if trained.run.encoder.startswith("hf:") else "untrained towers"
    models = {before: trained.untrained(), "trained towers": trained}
    vectors = {name: model.encode(list(asked.passages), progress=progress) for name, model in models.items()}
    rivals: dict[str, Retriever] = {
        name: Dense(model, build(vectors[name], None, None, metric="dot", kind="exact")) for name, model in models.items()
    }
    notes = [line.format(n=len(asked), passages=len(asked.passages), seen=_seen(asked, train)) for line in NOTES]
    try:
        rivals = {"BM25": Lexical(build_bm25(asked.passages)), **rivals}
    except MissingExtra:
        notes[1] = NO_BM25
    results = [row(name, name != "trained towers", vectors.get(name), **found_by(asked, rival)) for name, rival in rivals.items()]
    table = Table(results, protocol(trained, notes, accuracies=TITLES, questions=len(asked), passages=len(asked.passages)))
    among, shown = (_places(asked, part) for part in (chosen, test))
    after = vectors["trained towers"]
    return Evaluation(table, splits, chosen, after[among], after[shown], untrained=vectors[before][shown])


def questions_of(train: Texts, test: Texts, key: Key) -> Questions:
    """The questions of the test split over all passages there are. Equal texts are one; what answers a question anywhere is right.

    Of equal scores a search gives the passage that stands first, hence the keyed order: no split stands before the other.
    """
    texts = list(dict.fromkeys(text for part in (train, test) for role in ("passage", "negative") for text in texts_of(part, role)))
    passages = {texts[i]: place for place, i in enumerate(key.permutation(len(texts)))}
    gold: dict[str, dict[int, None]] = {question: {} for question in texts_of(test, "question")}
    for part in (train, test):
        for question, passage in zip(texts_of(part, "question"), texts_of(part, "passage"), strict=True):
            if question in gold:
                gold[question][passages[passage]] = None
    none = ((),) * len(gold)
    rows = tuple(tuple(found) for found in gold.values())
    return Questions(tuple(gold), tuple(passages), rows, none, none, np.zeros(len(passages), dtype=np.int64), source=test.source)


def found_by(asked: Questions, retriever: Retriever) -> dict[str, float]:
    """The columns of one retriever."""
    hits = retriever.search(asked.questions, min(DEPTH, len(asked.passages)))
    relevant = torch.tensor([len(rows) for rows in asked.gold])
    found = summary(torch.from_numpy(asked.found(hits.rows)), relevant)
    return {key: found[name] for key, name in (TITLES | {"mrr": "MRR"}).items() if name in found}


def _seen(asked: Questions, train: Texts) -> int:
    """Questions with an answering passage that was trained on: pulled near another question, or pushed away from one."""
    known = {*texts_of(train, "passage"), *texts_of(train, "negative")}
    return sum(any(asked.passages[place] in known for place in rows) for rows in asked.gold)


def _places(asked: Questions, part: Texts) -> Tensor:
    """For each row its passage's place in the corpus."""
    places = {text: i for i, text in enumerate(asked.passages)}
    return torch.tensor([places[text] for text in texts_of(part, "passage")])


def texts_of(part: Any, role: str) -> Sequence[str]:
    """The texts of a role, one a row; none where the data have no such column."""
    name = column(part, role)
    return [] if name is None else part.texts(column=name)

"""Readers are measured by what they mark: SQuAD's exact match and F1, in the passages that are known to answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nearfar.core import UsageError
from nearfar.core.errors import MissingExtra
from nearfar.data import Splits, Texts
from nearfar.evaluate import Table
from nearfar.evaluate.squad_answers import score_answers
from nearfar.index.bm25 import build_bm25, tokenise
from nearfar.index.passage_reader import Reader
from nearfar.modalities.interface import Evaluation, Progress
from nearfar.modalities.named_rows import protocol, row
from nearfar.modalities.questions import texts_of
from nearfar.similarity.questions import needed
from nearfar.train.model import Trained

TITLES = {"exact": "exact match", "f1": "F1"}
FIRST = 3
"""Words of the simplest answer there is."""
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Answerable:
    """The questions of a split, each with a passage that answers it and all answers that the rows of this pair accept."""

    questions: list[str]
    passages: list[str]
    answers: list[list[str]]

    @classmethod
    def of(cls, part: Texts) -> Answerable:
        accepted: dict[tuple[str, str], list[str]] = {}
        for question, passage, answer in zip(*(texts_of(part, role) for role in ("question", "passage", "answer")), strict=True):
            accepted.setdefault((question, passage), []).append(answer)
        return cls([question for question, _ in accepted], [passage for _, passage in accepted], list(accepted.values()))


def marks_answers(trained: Trained) -> bool:
    return hasattr(trained.recipe, "spans")


def reading(trained: Trained, splits: Splits, chosen: Texts, progress: Progress | None) -> Evaluation:
    """The table of a run that marks answers. `chosen`: the training rows that a report looks for neighbours in."""
    if splits.test is None:
        raise UsageError(f"{splits.train.source} has no test split and is too small to draw one: nothing to evaluate on")
    needed(splits.test, "question", "passage", "answer")
    asked = Answerable.of(splits.test)
    before, untrained = "reader before training" if trained.run.encoder.startswith("hf:") else "untrained reader", trained.untrained()
    said = {f"the first {FIRST} words": [" ".join(passage.split()[:FIRST]) for passage in asked.passages]}
    notes = [
        f"Answers, in per cent: each of {len(asked.questions):,} test questions is read with the passage that answers it, cut off after "
        f"{trained.net.sizes['length']} tokens of both. Exact match and F1 as SQuAD has them, the best over the accepted answers.",
    ]
    try:
        said["the sentence BM25 finds"] = [best_sentence(q, p) for q, p in zip(asked.questions, asked.passages, strict=True)]
    except MissingExtra:
        notes.append("The sentence that shares most words with the question is left out: pip install 'nearfar[search]'.")
    said |= {name: [s.text for s in Reader.of(who).read(asked.questions, asked.passages)] for name, who in
             ((before, untrained), ("trained reader", trained))}  # fmt: skip
    results = []
    for name, answers in said.items():
        scores = score_answers(answers, asked.answers)
        results.append(row(name, name != "trained reader", exact=float(scores.exact.mean()), f1=float(scores.f1.mean())))
    table = Table(results, protocol(trained, notes, accuracies=TITLES, questions=len(asked.questions)))
    vectors = [trained.encode(part, progress=progress) for part in (chosen, splits.test)]
    return Evaluation(table, splits, chosen, *vectors, untrained=untrained.encode(splits.test, progress=progress))


def best_sentence(question: str, passage: str) -> str:
    """The sentence that BM25 finds for the question; the passage itself where there is nothing to choose by."""
    sentences = [s for s in _BETWEEN_SENTENCES.split(passage) if s.strip()]
    if len(sentences) < 2 or not any(tokenise(sentences)):
        return passage
    return sentences[int(build_bm25(sentences).search([question], 1).rows[0, 0])]

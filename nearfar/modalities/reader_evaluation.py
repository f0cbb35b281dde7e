"""Evaluation of readers: SQuAD's exact match and F1 on passages that contain an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nearfar.core import UsageError
from nearfar.core.errors import MissingExtra
from nearfar.core.modality import Evaluation
from nearfar.core.progress import ProgressCallback
from nearfar.data import Splits, Texts
from nearfar.evaluate import ResultTable
from nearfar.evaluate.squad_answers import score_answers
from nearfar.index.bm25 import build_bm25, tokenize_without_stopwords
from nearfar.index.passage_reader import PassageReader
from nearfar.modalities.embedding_tables import build_protocol, build_result_row
from nearfar.modalities.retrieval_evaluation import get_role_texts
from nearfar.similarity.questions import check_columns
from nearfar.train.model import Model

ANSWER_TITLES = {"exact": "exact match", "f1": "F1"}
FIRST_WORDS = 3
"""Number of words of the simplest baseline answer."""
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class AnswerableQuestions:
    """Questions of a split, each with an answering passage and all accepted answers.

    The accepted answers come from all rows of the same question and passage.
    """

    questions: list[str]
    passages: list[str]
    answers: list[list[str]]

    @classmethod
    def from_split(cls, part: Texts) -> AnswerableQuestions:
        """Collect the pairs of question and passage in a split and their answers."""
        accepted: dict[tuple[str, str], list[str]] = {}
        for question, passage, answer in zip(*(get_role_texts(part, role) for role in ("question", "passage", "answer")), strict=True):
            accepted.setdefault((question, passage), []).append(answer)
        return cls([question for question, _ in accepted], [passage for _, passage in accepted], list(accepted.values()))


def is_reader(model: Model) -> bool:
    """Return True if the model marks answers in passages."""
    return hasattr(model.recipe, "score_spans")


def evaluate_reader(model: Model, splits: Splits, train_samples: Texts, progress: ProgressCallback | None) -> Evaluation:
    """Evaluate a reader and return the result table.

    `train_samples` are the training rows in which a report looks for neighbors.
    """
    if splits.test is None:
        raise UsageError(f"{splits.train.source} has no test split and is too small to draw one: nothing to evaluate on")
    check_columns(splits.test, "question", "passage", "answer")
    asked = AnswerableQuestions.from_split(splits.test)
    before, untrained = "reader before training" if model.config.encoder.startswith("hf:") else "untrained reader", model.build_untrained()
    said = {f"the first {FIRST_WORDS} words": [" ".join(passage.split()[:FIRST_WORDS]) for passage in asked.passages]}
    notes = [
        f"Answers, in per cent: each of {len(asked.questions):,} test questions is read with the passage that answers it, cut off after "
        f"{model.net.sizes['max_length']} tokens of both. Exact match and F1 as SQuAD has them, the best over the accepted answers.",
    ]
    try:
        said["the sentence BM25 finds"] = [find_best_sentence(q, p) for q, p in zip(asked.questions, asked.passages, strict=True)]
    except MissingExtra:
        notes.append("The sentence that shares most words with the question is left out: pip install 'nearfar[search]'.")
    said |= {name: [s.text for s in PassageReader.from_model(who).read(asked.questions, asked.passages)] for name, who in
             ((before, untrained), ("trained reader", model))}  # fmt: skip
    results = []
    for name, answers in said.items():
        scores = score_answers(answers, asked.answers)
        results.append(build_result_row(name, name != "trained reader", exact=float(scores.exact_match.mean()), f1=float(scores.f1.mean())))
    table = ResultTable(results, build_protocol(model, notes, accuracies=ANSWER_TITLES, questions=len(asked.questions)))
    vectors = [model.encode(part, progress=progress) for part in (train_samples, splits.test)]
    return Evaluation(table, splits, train_samples, *vectors, untrained_features=untrained.encode(splits.test, progress=progress))


def find_best_sentence(question: str, passage: str) -> str:
    """Return the sentence that BM25 ranks first for the question.

    Returns the whole passage if it has one sentence or no words to rank by.
    """
    sentences = [s for s in _BETWEEN_SENTENCES.split(passage) if s.strip()]
    if len(sentences) < 2 or not any(tokenize_without_stopwords(sentences)):
        return passage
    return sentences[int(build_bm25(sentences).search([question], 1).rows[0, 0])]

"""Questions with the passages that answer them.

Supported sources are SQuAD's JSON, TREC-QA's CSV, custom tables and docstrings:

    load_questions("xquad.en.json")     articles, paragraphs, answers with their positions
    load_questions("train.csv")         qtext,label,atext: sentences, each labeled for its question
    load_questions("mine.jsonl")        question, passage (or passages), answer (or answers), negative

`load_questions` returns one corpus of passages, with each text once. For each question it returns the rows of
the corpus that answer the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64

from nearfar.core.errors import UsageError
from nearfar.data.text.dataset import Texts, TextStore

PassageIds = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions over one corpus of passages. Subsets share the corpus."""

    questions: tuple[str, ...]
    passages: tuple[str, ...]
    gold: tuple[PassageIds, ...]
    """Passages that answer each question."""
    answers: tuple[tuple[str, ...], ...]
    """Accepted answers of each question. Empty if only passages are known."""
    candidates: tuple[PassageIds, ...]
    """Judged passages of each question, including its gold passages. Empty if no passage was judged."""
    passage_documents: Int64[np.ndarray, " p"]
    """Article of each passage. A fair split keeps articles whole."""
    source: str = ""
    skipped: tuple[str, ...] = ()
    """Descriptions of rows that were skipped because they could not be read."""

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def question_documents(self) -> Int64[np.ndarray, " q"]:
        """Return the article of each question.

        It is the article of the first gold passage, or -1 if there is none.
        """
        return np.array([self.passage_documents[rows[0]] if rows else -1 for rows in self.gold], dtype=np.int64)

    def subset(self, ids: Sequence[int] | np.ndarray) -> Questions:
        """Return the chosen questions over the same corpus."""
        chosen = [int(i) for i in ids]
        fields = ("questions", "gold", "answers", "candidates")
        return replace(self, **{name: tuple(getattr(self, name)[i] for i in chosen) for name in fields})

    def is_gold(self, passage_ids: Int64[np.ndarray, "q k"]) -> Bool[np.ndarray, "q k"]:
        """Mark retrieved passages that answer their question.

        Args:
            passage_ids: `(q, k)` passages that a search returned for each question.
        """
        right = [np.isin(row, np.array(gold, dtype=np.int64)) for row, gold in zip(passage_ids, self.gold, strict=True)]
        return np.array(right, dtype=bool).reshape(passage_ids.shape)

    def to_training_texts(self, negatives: Sequence[PassageIds] | None = None) -> Texts:
        """Build training rows, one for each gold passage.

        A row has the columns passage and question, and also answer and negative if these are known. The
        passage is the first column because a row is represented by its first column.

        Args:
            negatives: for each question, passages that seem right but are wrong. The gold passages of a
                question take turns with them.

        Raises:
            UsageError: no question has a passage (and a negative).
        """
        rows = [(i, p, n) for i, gold in enumerate(self.gold) for n, p in enumerate(gold)]
        if negatives is not None:
            rows = [row for row in rows if negatives[row[0]]]
        if not rows:
            raise UsageError(f"{self.source} has no question with a passage{'' if negatives is None else ' and a negative'} to learn from")
        columns = {"passage": [self.passages[p] for _, p, _ in rows], "question": [self.questions[i] for i, _, _ in rows]}
        if all(self.answers[i] for i, _, _ in rows):
            columns["answer"] = [self.answers[i][0] for i, _, _ in rows]
        if negatives is not None:
            columns["negative"] = [self.passages[negatives[i][n % len(negatives[i])]] for i, _, n in rows]
        store = TextStore(columns, document_ids=np.array([self.passage_documents[p] for _, p, _ in rows], dtype=np.int64))
        return Texts(store, np.arange(len(rows)), source=self.source, skipped=self.skipped)


@dataclass
class QuestionsBuilder:
    """Builder that collects questions from a reader.

    Equal passages are stored once.
    """

    question_ids: dict[str, int] = field(default_factory=dict)
    """Number of each question by its text, if several rows can have the same question."""
    document_ids: dict[str, int] = field(default_factory=dict)
    """Number of each document by its name."""
    passages: dict[str, int] = field(default_factory=dict)
    documents: list[int] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    gold: list[dict[int, None]] = field(default_factory=list)
    answers: list[dict[str, None]] = field(default_factory=list)
    candidates: list[dict[int, None]] = field(default_factory=list)

    def add_passage(self, text: str, document: int) -> int:
        """Return the number of a passage. Add the passage if it is new."""
        if text not in self.passages:
            self.passages[text] = len(self.passages)
            self.documents.append(document)
        return self.passages[text]

    def add_question(self, text: str) -> int:
        """Add a question and return its number."""
        self.questions.append(text)
        for column in (self.gold, self.answers, self.candidates):
            column.append({})
        return len(self.questions) - 1

    def find_or_add_question(self, text: str) -> int:
        """Return the number of the question with this text.

        Add the question if it is new.
        """
        if text not in self.question_ids:
            self.question_ids[text] = self.add_question(text)
        return self.question_ids[text]

    def build(self, source: str, skipped: Sequence[str]) -> Questions:
        """Build the questions. Raise `UsageError` if there are none."""
        if not self.questions:
            raise UsageError(f"there is no question in {source}")
        rows = {name: tuple(tuple(row) for row in getattr(self, name)) for name in ("gold", "answers", "candidates")}
        documents = np.array(self.documents, dtype=np.int64)
        return Questions(
            tuple(self.questions), tuple(self.passages), **rows, passage_documents=documents, source=source, skipped=tuple(skipped)
        )


class BrokenEntry(Exception):
    """Error for a broken entry. Its message states the reason."""

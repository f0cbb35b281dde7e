"""Questions with the passages that answer them.

Supported sources are SQuAD's JSON, TREC-QA's CSV, custom tables and docstrings:

    load_questions("xquad.en.json")     articles, paragraphs, answers with their positions
    load_questions("train.csv")         qtext,label,atext: sentences, each labeled for its question
    load_questions("mine.jsonl")        question, passage (or passages), answer (or answers), negative

`load_questions` returns one corpus of passages, with each text once. For each question it returns the rows of
the corpus that answer the question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.data.common.text_rows import RowCollector
from nearfar.data.common.text_tables import TABLE_READERS
from nearfar.data.samples.docstrings import make_docstrings
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
class _QuestionsBuilder:
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


def load_questions(path: str | os.PathLike, on_error: str = "stop") -> Questions:
    """Load a file of questions in any supported layout.

    An error names the file and the line of a broken row, or its position in SQuAD's JSON.

    Args:
        path: .json file in the SQuAD layout, or a table.
        on_error: "stop" to raise at a broken row, "skip" to omit it and list it in `skipped`.

    Raises:
        UsageError: the file is missing, has an unknown layout, or a row is broken.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UsageError(f"no questions {os.fspath(path)!r}: there is no such file")
    collected = RowCollector(on_error)
    collected.start_file(file.name)
    found = _QuestionsBuilder()
    if file.suffix.lower() == ".json":
        _read_squad(file, found, collected)
    elif file.suffix.lower() in TABLE_READERS:
        _read_rows(file, found, collected)
    else:
        raise UsageError(f"cannot read questions from {file}: give SQuAD's .json, or a table that ends in {' or '.join(TABLE_READERS)}")
    return found.build(os.fspath(path), collected.skipped)


class _BrokenEntry(Exception):
    """Error for a broken entry. Its message states the reason."""


def _get_field(entry: Any, name: str, value_type: type) -> Any:
    value: Any = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, value_type) or (value_type is str and not str(value).strip()):
        raise _BrokenEntry(f"it has no {name!r} that is {'a text' if value_type is str else f'a {value_type.__name__}'}")
    return value


def _read_squad(file: Path, found: _QuestionsBuilder, collected: RowCollector) -> None:
    try:
        articles = json.loads(file.read_text(encoding="utf-8"))["data"]
        nested = [(a, p, paragraph) for a, article in enumerate(articles) for p, paragraph in enumerate(article["paragraphs"])]
    except UnicodeDecodeError as e:
        raise UsageError(f"{file} is not UTF-8 ({e.reason} at byte {e.start})") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"{file}, line {e.lineno}: not JSON ({e.msg})") from e
    except (KeyError, TypeError, IndexError) as e:
        raise UsageError(f"{file} is not laid out as SQuAD is: data, a list of articles, each with a list of paragraphs") from e
    for a, p, paragraph in nested:
        place = f"data[{a}].paragraphs[{p}]"
        try:
            context, entries = _get_field(paragraph, "context", str), _get_field(paragraph, "qas", list)
        except _BrokenEntry as e:
            _report_broken(collected, place, str(e))
            continue
        row = found.add_passage(context, a)
        for q, entry in enumerate(entries):
            try:
                _add_squad_question(entry, context, row, found)
            except _BrokenEntry as e:
                _report_broken(collected, f"{place}.qas[{q}]", str(e))


def _add_squad_question(entry: Any, context: str, row: int, found: _QuestionsBuilder) -> None:
    """Add a question with its answers.

    A SQuAD 2 question without an answer gets no passage.
    """
    question, answers = _get_field(entry, "question", str), _get_field(entry, "answers", list)
    texts = []
    for answer in answers:
        text, start = _get_field(answer, "text", str), _get_field(answer, "answer_start", int)
        if context[start : start + len(text)] != text:
            raise _BrokenEntry(f"its answer {text!r} does not stand at character {start} of the context")
        texts.append(text)
    number = found.add_question(question)
    found.answers[number] = dict.fromkeys(texts)
    found.gold[number] = {row: None} if texts else {}


def _report_broken(collected: RowCollector, place: str, why: str) -> None:
    """Report a broken entry that has a position but no line number.

    This function corresponds to `RowCollector.reject_row`.
    """
    if collected.on_error == "stop":
        raise UsageError(f"{collected.files[-1]}, {place}: {why}. Repair it, or leave such rows out with --on-error skip")
    collected.skipped.append(f"{collected.files[-1]}, {place}: {why}")


def _read_rows(file: Path, found: _QuestionsBuilder, collected: RowCollector) -> None:
    """Read a table of judged sentences, or of questions with their passages."""
    for line, row in TABLE_READERS[file.suffix.lower()](file, collected):
        try:
            (_add_judged_row if {"qtext", "label", "atext"} <= row.keys() else _add_question_row)(row, found)
        except _BrokenEntry as e:
            collected.reject_row(line, str(e))


def _add_judged_row(row: dict[str, Any], found: _QuestionsBuilder) -> None:
    question, passage, label = _get_field(row, "qtext", str), _get_field(row, "atext", str), str(row["label"]).strip()
    if label not in ("0", "1"):
        raise _BrokenEntry(f"'label' is 0 or 1, got {label!r}")
    number = found.find_or_add_question(question)
    place = found.add_passage(passage, number)
    found.candidates[number][place] = None
    if label == "1":
        found.gold[number][place] = None


def _add_question_row(row: dict[str, Any], found: _QuestionsBuilder) -> None:
    question = _get_field(row, "question", str)
    gold, negative, answers = (_texts(row, name) for name in ("passage", "negative", "answer"))
    if not gold:
        raise _BrokenEntry("it has no 'passage' (one text) or 'passages' (a list of texts)")
    number = found.find_or_add_question(question)
    document = found.document_ids.setdefault(str(row.get("document", row.get("title", gold[0]))), len(found.document_ids))
    places = [found.add_passage(text, document) for text in (*gold, *negative)]
    found.gold[number] |= dict.fromkeys(places[: len(gold)])
    found.answers[number] |= dict.fromkeys(answers)
    if negative:
        found.candidates[number] |= dict.fromkeys(places)


def _texts(row: dict[str, Any], one: str) -> list[str]:
    """Read one text or a list of texts from a row.

    The column name may be singular or plural. An empty cell gives an empty list.
    """
    name = f"{one}s" if f"{one}s" in row else one
    value = row.get(name) or []
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) and v.strip() for v in values):
        raise _BrokenEntry(f"{name!r} must be a text or a list of texts, none of them empty")
    return values


def make_docstring_questions() -> Texts:
    """Build a question dataset from Python docstrings.

    The first sentence of a docstring is the question, and its other sentences are the passage. The negative
    is the passage of another docstring of the same module. The answer is the sentence of the passage that
    shares the most words with the question, relative to its length.
    """
    columns: dict[str, list[str]] = {name: [] for name in ("passage", "question", "answer", "negative")}
    for module, told in _docstrings_by_module().items():
        further = RandomKey(0)("docstring-questions", module).integers(np.arange(len(told)), max(len(told) - 1, 1))
        for i, (question, *rest) in enumerate(told if len(told) > 1 else ()):
            other = told[(i + 1 + int(further[i])) % len(told)]
            row = (" ".join(rest), question, max(rest, key=_count_shared_words(question)), " ".join(other[1:]))
            for name, text in zip(columns, row, strict=True):
                columns[name].append(text)
    return Texts(TextStore(columns), np.arange(len(columns["question"])), source="docstring-questions")


def _docstrings_by_module() -> dict[int, list[list[str]]]:
    """Return the sentences of docstrings by module.

    Docstrings with fewer than two sentences are omitted.
    """
    found = make_docstrings()
    assert found.document_ids is not None
    assert found.labels is not None
    sentences: dict[tuple[int, int], list[str]] = {}
    for text, document, module in zip(found.get_strings(), found.document_ids, found.labels, strict=True):
        sentences.setdefault((int(module), int(document)), []).append(text)
    modules: dict[int, list[list[str]]] = {}
    for (module, _), texts in sentences.items():
        if len(texts) > 1:
            modules.setdefault(module, []).append(texts)
    return modules


def _count_shared_words(question: str) -> Callable[[str], float]:
    words = set(question.lower().split())
    return lambda sentence: len(words & set(sentence.lower().split())) / (1 + len(sentence.split()))

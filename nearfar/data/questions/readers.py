"""File formats of questions with passages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nearfar.core.errors import UsageError
from nearfar.data.common.text_tables import TABLE_READERS
from nearfar.data.questions.dataset import BrokenEntry, QuestionsBuilder
from nearfar.data.text.readers import RowCollector


def _get_field(entry: Any, name: str, value_type: type) -> Any:
    value: Any = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, value_type) or (value_type is str and not str(value).strip()):
        raise BrokenEntry(f"it has no {name!r} that is {'a text' if value_type is str else f'a {value_type.__name__}'}")
    return value


def read_squad_file(file: Path, found: QuestionsBuilder, collected: RowCollector) -> None:
    try:
        articles = json.loads(file.read_text(encoding="utf-8"))["data"]
        nested = [(a, p, paragraph) for a, article in enumerate(articles) for p, paragraph in enumerate(article["paragraphs"])]
    except UnicodeDecodeError as e:
        raise UsageError(f"{file} is not UTF-8 ({e.reason} at byte {e.start})") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"{file}, line {e.lineno}: not JSON ({e.msg})") from e
    except (KeyError, TypeError, IndexError) as e:
        raise UsageError(f"{file} does not have SQuAD's layout: data, a list of articles, each with a list of paragraphs") from e
    for a, p, paragraph in nested:
        place = f"data[{a}].paragraphs[{p}]"
        try:
            context, entries = _get_field(paragraph, "context", str), _get_field(paragraph, "qas", list)
        except BrokenEntry as e:
            _report_broken(collected, place, str(e))
            continue
        row = found.add_passage(context, a)
        for q, entry in enumerate(entries):
            try:
                _add_squad_question(entry, context, row, found)
            except BrokenEntry as e:
                _report_broken(collected, f"{place}.qas[{q}]", str(e))


def _add_squad_question(entry: Any, context: str, row: int, found: QuestionsBuilder) -> None:
    """Add a question with its answers.

    A SQuAD 2 question without an answer gets no passage.
    """
    question, answers = _get_field(entry, "question", str), _get_field(entry, "answers", list)
    texts = []
    for answer in answers:
        text, start = _get_field(answer, "text", str), _get_field(answer, "answer_start", int)
        if context[start : start + len(text)] != text:
            raise BrokenEntry(f"its answer {text!r} is not at character {start} of the context")
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


def read_question_rows(file: Path, found: QuestionsBuilder, collected: RowCollector) -> None:
    """Read a table of judged sentences, or of questions with their passages."""
    for line, row in TABLE_READERS[file.suffix.lower()](file, collected):
        try:
            (_add_judged_row if {"qtext", "label", "atext"} <= row.keys() else _add_question_row)(row, found)
        except BrokenEntry as e:
            collected.reject_row(line, str(e))


def _add_judged_row(row: dict[str, Any], found: QuestionsBuilder) -> None:
    question, passage, label = _get_field(row, "qtext", str), _get_field(row, "atext", str), str(row["label"]).strip()
    if label not in ("0", "1"):
        raise BrokenEntry(f"'label' must be 0 or 1, got {label!r}")
    number = found.find_or_add_question(question)
    place = found.add_passage(passage, number)
    found.candidates[number][place] = None
    if label == "1":
        found.gold[number][place] = None


def _add_question_row(row: dict[str, Any], found: QuestionsBuilder) -> None:
    question = _get_field(row, "question", str)
    gold, negative, answers = (_texts(row, name) for name in ("passage", "negative", "answer"))
    if not gold:
        raise BrokenEntry("it has no 'passage' (one text) or 'passages' (a list of texts)")
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
        raise BrokenEntry(f"{name!r} must be a text or a list of texts, none of them empty")
    return values

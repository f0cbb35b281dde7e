"""Tables of texts: CSV, TSV, JSON lines and Parquet, with named columns.

Which columns are texts is told by `--columns anchor,positive,negative` (and `label=NAME`, `score=NAME`), or guessed from
the names that such tables usually have.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nearfar.core.errors import UsageError, did_you_mean
from nearfar.data.common.text_rows import Collected, lines_of

USUAL = (
    ("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"), ("anchor", "positive"), ("sentence1", "sentence2"),
    ("passage", "question", "answer", "negative"), ("passage", "question", "negative"), ("passage", "question", "answer"),
    ("passage", "question"),
    ("premise", "hypothesis"), ("question", "answer"), ("query", "positive", "negative"), ("query", "positive"),
    ("text",), ("sentence",), ("content",),
)  # fmt: skip
"""Columns of texts that tables usually have; the first that are all there are taken."""
LABELS = ("label", "labels", "class", "gold_label", "category")
SCORES = ("score", "similarity")


@dataclass(frozen=True)
class Roles:
    """Which columns are texts, and which is a label or a score."""

    texts: tuple[str, ...]
    label: str | None = None
    score: str | None = None


def roles(wanted: str | None, known: Sequence[str], source: str) -> Roles:
    """What the columns of a table are for."""
    if wanted is None:
        texts = next((names for names in USUAL if set(names) <= set(known)), None)
        if texts is None and len(known) == 1:
            texts = (known[0],)
        if texts is None:
            raise UsageError(f"{source} has the columns {', '.join(known)}: name those that are texts, as in --columns {known[0]}")
        return Roles(texts, next((n for n in LABELS if n in known), None), next((n for n in SCORES if n in known), None))
    named = [part.strip().partition("=") for part in wanted.split(",")]
    special = {role: name for role, equals, name in named if equals}
    if unknown := special.keys() - {"label", "score"}:
        raise UsageError(f"--columns {wanted}: {min(unknown)!r} is no role; only label=NAME and score=NAME are")
    texts = tuple(name for name, equals, _ in named if not equals)
    for name in (*texts, *special.values()):
        if name not in known:
            raise UsageError(f"--columns: {source} has no column {name!r}.{did_you_mean(name, known)} It has {', '.join(known)}")
    if not texts:
        raise UsageError(f"--columns {wanted} names no text")
    return Roles(texts, special.get("label"), special.get("score"))


Row = tuple[int, dict[str, Any]]
"""A line number and the values of a row, by column."""


def read_table(path: Path, name: str, collected: Collected, columns: str | None) -> None:
    collected.open(name)
    take_rows(TABLES[path.suffix.lower()](path, collected), name, collected, columns)


def take_rows(rows: Iterable[Row], name: str, collected: Collected, columns: str | None) -> None:
    chosen: Roles | None = None
    for line, row in rows:
        chosen = chosen or roles(columns, list(row), name)
        if problem := _problem(row, chosen):
            collected.broken(line, problem)
            continue
        label = None if chosen.label is None else str(row[chosen.label])
        score = None if chosen.score is None else float(row[chosen.score])
        collected.add({column: row[column] for column in chosen.texts}, line, label, score)


def _problem(row: dict[str, Any], chosen: Roles) -> str | None:
    """What is wrong with a row, if anything."""
    for column in (*chosen.texts, *filter(None, (chosen.label, chosen.score))):
        if row.get(column) is None or (column == chosen.label and _is_blank(row[column])):
            return f"it has no {column!r}"
    for column in chosen.texts:
        if not isinstance(row[column], str):
            return f"{column!r} is no text but {type(row[column]).__name__}"
    try:
        wrong = chosen.score is not None and not math.isfinite(float(row[chosen.score]))
    except (TypeError, ValueError):
        wrong = True
    return f"{chosen.score!r} is no number: {row[chosen.score or '']!r}" if wrong else None


def _is_blank(label: Any) -> bool:
    """What tables without nulls write where there is no label: nothing, or NaN."""
    return label != label or (isinstance(label, str) and not label.strip())


SEPARATORS = ",;\t|"
"""Of columns, in tables that people call .csv."""
csv.field_size_limit(1 << 30)  # of a field in characters; Python's own limit is shorter than many a document


def _called(mark: str) -> str:
    return "a tab" if mark == "\t" else repr(mark)


def _separated(delimiter: str, quoting: Literal[0, 3]) -> Callable[[Path, Collected], Iterator[Row]]:
    def read(path: Path, collected: Collected) -> Iterator[Row]:
        reader = csv.reader((line + "\n" for _, line in lines_of(path, collected)), delimiter=delimiter, quoting=quoting, strict=True)
        header: list[str] = []
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as e:
                collected.broken(reader.line_num, str(e))
                continue
            if not header:
                header = values
                if other := next((mark for mark in SEPARATORS if len(header) == 1 and mark in header[0]), None):
                    raise UsageError(
                        f"{path} has one column, with {_called(other)} in its name: columns of a {path.suffix} are separated by "
                        f"{_called(delimiter)}. Write it anew, or rename the column"
                    )
                if len(set(header)) < len(header):
                    raise UsageError(f"{path}: two columns have the same name in its first line")
            elif len(values) != len(header):
                if values:
                    collected.broken(reader.line_num, f"{len(values)} values, but {len(header)} columns")
            else:
                yield reader.line_num, dict(zip(header, values, strict=True))

    return read


def _json_lines(path: Path, collected: Collected) -> Iterator[Row]:
    for number, line in lines_of(path, collected):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            collected.broken(number, f"not JSON ({e})")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            collected.broken(number, f"not a JSON object but {type(row).__name__}")


def _parquet(path: Path, collected: Collected) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as e:
        raise UsageError(f"{path} needs the package pyarrow, which is not installed") from e
    try:
        file = pq.ParquetFile(path)
        number = 0
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (OSError, pa.ArrowException) as e:
        raise UsageError(f"cannot read {path}: {str(e).splitlines()[0]}") from e


TABLES: dict[str, Callable[[Path, Collected], Iterator[Row]]] = {
    ".csv": _separated(",", csv.QUOTE_MINIMAL),
    ".tsv": _separated("\t", csv.QUOTE_NONE),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}

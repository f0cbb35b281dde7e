"""Readers of text tables with named columns: CSV, TSV, JSON lines and Parquet.

`--columns anchor,positive,negative` (and `label=NAME`, `score=NAME`) selects the columns of texts. Without
this option, the columns are guessed from the usual names of such tables.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nearfar.core.errors import UsageError, suggest_similar_names
from nearfar.data.text.readers import RowCollector, iterate_lines

COMMON_TEXT_COLUMNS = (
    ("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"), ("anchor", "positive"), ("sentence1", "sentence2"),
    ("passage", "question", "answer", "negative"), ("passage", "question", "negative"), ("passage", "question", "answer"),
    ("passage", "question"),
    ("premise", "hypothesis"), ("question", "answer"), ("query", "positive", "negative"), ("query", "positive"),
    ("text",), ("sentence",), ("content",),
)  # fmt: skip
"""Usual names of text columns. The first group of which the table has all columns is used."""
LABEL_COLUMNS = ("label", "labels", "class", "gold_label", "category")
SCORE_COLUMNS = ("score", "similarity")


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns of a table: texts, label and score."""

    texts: tuple[str, ...]
    label: str | None = None
    score: str | None = None


def resolve_column_roles(columns: str | None, available: Sequence[str], source: str) -> ColumnRoles:
    """Decide which columns are texts, which is the label and which the score.

    Args:
        columns: Value of --columns, or None to guess the roles.
        available: Names of all columns.
        source: Name of the table in error messages.

    Raises:
        UsageError: A named column does not exist, or the columns of texts cannot be guessed.
    """
    if columns is None:
        texts = next((names for names in COMMON_TEXT_COLUMNS if set(names) <= set(available)), None)
        if texts is None and len(available) == 1:
            texts = (available[0],)
        if texts is None:
            raise UsageError(f"{source} has the columns {', '.join(available)}: name the text columns, as in --columns {available[0]}")
        return ColumnRoles(
            texts, next((n for n in LABEL_COLUMNS if n in available), None), next((n for n in SCORE_COLUMNS if n in available), None)
        )
    named = [part.strip().partition("=") for part in columns.split(",")]
    special = {role: name for role, equals, name in named if equals}
    if unknown := special.keys() - {"label", "score"}:
        raise UsageError(f"--columns {columns}: {min(unknown)!r} is not a role; use label=NAME or score=NAME")
    texts = tuple(name for name, equals, _ in named if not equals)
    for name in (*texts, *special.values()):
        if name not in available:
            raise UsageError(
                f"--columns: {source} has no column {name!r}.{suggest_similar_names(name, available)} It has {', '.join(available)}"
            )
    if not texts:
        raise UsageError(f"--columns {columns} names no text column")
    return ColumnRoles(texts, special.get("label"), special.get("score"))


NumberedRow = tuple[int, dict[str, Any]]
"""Line number of a row, and its values by column."""


def read_table(path: Path, name: str, collector: RowCollector, columns: str | None) -> None:
    """Read a table file and add its rows to the collector."""
    collector.start_file(name)
    collect_rows(TABLE_READERS[path.suffix.lower()](path, collector), name, collector, columns)


def collect_rows(rows: Iterable[NumberedRow], name: str, collector: RowCollector, columns: str | None) -> None:
    """Add the rows of a table to the collector, and reject broken rows."""
    chosen: ColumnRoles | None = None
    for line, row in rows:
        chosen = chosen or resolve_column_roles(columns, list(row), name)
        if problem := _problem(row, chosen):
            collector.reject_row(line, problem)
            continue
        label = None if chosen.label is None else str(row[chosen.label])
        score = None if chosen.score is None else float(row[chosen.score])
        collector.add({column: row[column] for column in chosen.texts}, line, label, score)


def _problem(row: dict[str, Any], chosen: ColumnRoles) -> str | None:
    """Return the reason why a row is broken, or None."""
    for column in (*chosen.texts, *filter(None, (chosen.label, chosen.score))):
        if row.get(column) is None or (column == chosen.label and _is_blank(row[column])):
            return f"it has no {column!r}"
    for column in chosen.texts:
        if not isinstance(row[column], str):
            return f"{column!r} is not a text but {type(row[column]).__name__}"
    try:
        wrong = chosen.score is not None and not math.isfinite(float(row[chosen.score]))
    except (TypeError, ValueError):
        wrong = True
    return f"{chosen.score!r} is not a number: {row[chosen.score or '']!r}" if wrong else None


def _is_blank(label: Any) -> bool:
    """Return True if a label is an empty string or NaN, as in tables without nulls."""
    return label != label or (isinstance(label, str) and not label.strip())


COLUMN_SEPARATORS = ",;\t|"
"""Column separators in files that people name .csv."""
csv.field_size_limit(1 << 30)  # characters of a field; Python's default is shorter than many documents


def _called(mark: str) -> str:
    return "a tab" if mark == "\t" else repr(mark)


def _separated(delimiter: str, quoting: Literal[0, 3]) -> Callable[[Path, RowCollector], Iterator[NumberedRow]]:
    def read(path: Path, collected: RowCollector) -> Iterator[NumberedRow]:
        reader = csv.reader((line + "\n" for _, line in iterate_lines(path, collected)), delimiter=delimiter, quoting=quoting, strict=True)
        header: list[str] = []
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as e:
                collected.reject_row(reader.line_num, str(e))
                continue
            if not header:
                header = values
                if other := next((mark for mark in COLUMN_SEPARATORS if len(header) == 1 and mark in header[0]), None):
                    raise UsageError(
                        f"{path} has one column, with {_called(other)} in its name: columns of a {path.suffix} are separated by "
                        f"{_called(delimiter)}. Write the file again, or rename the column"
                    )
                if len(set(header)) < len(header):
                    raise UsageError(f"{path}: two columns have the same name in its first line")
            elif len(values) != len(header):
                if values:
                    collected.reject_row(reader.line_num, f"{len(values)} values, but {len(header)} columns")
            else:
                yield reader.line_num, dict(zip(header, values, strict=True))

    return read


def _json_lines(path: Path, collector: RowCollector) -> Iterator[NumberedRow]:
    for number, line in iterate_lines(path, collector):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            collector.reject_row(number, f"not JSON ({e})")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            collector.reject_row(number, f"not a JSON object but {type(row).__name__}")


def _parquet(path: Path, collector: RowCollector) -> Iterator[NumberedRow]:
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


TABLE_READERS: dict[str, Callable[[Path, RowCollector], Iterator[NumberedRow]]] = {
    ".csv": _separated(",", csv.QUOTE_MINIMAL),
    ".tsv": _separated("\t", csv.QUOTE_NONE),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}

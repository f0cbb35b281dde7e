"""Shared code of the readers of texts.

Rows are collected, and broken rows are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.common.arrays import as_label_array, encode_labels
from nearfar.data.text.dataset import Texts, TextStore


class BrokenRow(NearfarError):
    """Error for a row that cannot be read, named by file and line."""


@dataclass
class RowCollector:
    """Collector of the rows that a reader finds.

    `add` and `reject_row` are called in the order of the source.
    """

    on_error: str = "stop"
    columns: dict[str, list[str]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    file_ids: list[int] = field(default_factory=list)
    line_numbers: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    document_ids: list[int] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def start_file(self, file: str) -> None:
        """Start a file: the rows that follow belong to it."""
        self.files.append(file)

    def add(
        self, texts: dict[str, str], line: int, label: str | None = None, score: float | None = None, document_id: int | None = None
    ) -> None:
        """Add a row, or reject it if one of its texts is empty.

        Args:
            texts: Text of each column, by name.
            line: Line of the row in the current file.
            label: Class of the row, if it has one.
            score: Similarity score of the row, if it has one.
            document_id: Number of the row's document, if it has one.
        """
        if empty := next((name for name, text in texts.items() if not text.strip()), None):
            return self.reject_row(line, f"the column {empty!r} is empty")
        if self.columns and texts.keys() != self.columns.keys():
            raise UsageError(f"{self.files[-1]} has the columns {', '.join(texts)}, {self.files[0]} has {', '.join(self.columns)}")
        for name, text in texts.items():
            self.columns.setdefault(name, []).append(text)
        self.file_ids.append(len(self.files) - 1)
        self.line_numbers.append(line)
        for values, value in ((self.labels, label), (self.scores, score), (self.document_ids, document_id)):
            if value is not None:
                values.append(value)  # type: ignore[arg-type]

    def reject_row(self, line: int, reason: str) -> None:
        """Raise `BrokenRow` or skip the row, as `on_error` says."""
        place = f"{self.files[-1]}, line {line}"
        if self.on_error == "stop":
            raise BrokenRow(f"{place}: {reason}. Repair it, or leave such rows out with --on-error skip")
        self.skipped.append(f"{place}: {reason}")

    def to_texts(self, source: str) -> Texts:
        """Build a dataset from the collected rows.

        Raises:
            UsageError: There are no rows, or only some rows have a label or a score.
        """
        n = len(self.line_numbers)
        if not n:
            raise UsageError(f"there is no text in {source}")
        for what, values in (("label", self.labels), ("score", self.scores)):
            if values and len(values) != n:
                raise UsageError(f"{source}: {len(values)} of {n} rows have a {what}; all must have one, or none")
        passages = np.array(self.document_ids, dtype=np.int64) if len(self.document_ids) == n else None
        store = TextStore(self.columns, tuple(self.files), np.array(self.file_ids), np.array(self.line_numbers), passages)
        (labels,), classes = encode_labels(np.array(self.labels) if self.labels else None)
        scores = np.array(self.scores, dtype=np.float32) if self.scores else None
        return Texts(store, np.arange(n), labels, classes, source, tuple(self.skipped), scores=scores)


def iterate_lines(path: Path, collector: RowCollector) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) for each line of a UTF-8 file.

    Lines that are not UTF-8 are rejected by the collector.
    """
    with open(path, "rb") as f:
        for number, raw in enumerate(f, 1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as e:
                collector.reject_row(number, f"not UTF-8 ({e.reason} at byte {e.start})")


def read_text_file(path: Path, name: str, collector: RowCollector, label: str | None = None) -> None:
    """Read a text file with one sentence on each line.

    An empty line ends a document. If the file begins with '# ', each document may begin with a title line
    that begins with '# '. Titles are left out.

    Args:
        path: File to read.
        name: Name of the file in sample names and error messages.
        collector: Collector to which the rows are added.
        label: Class of all rows of the file, if they have one.
    """
    collector.start_file(name)
    passage = collector.document_ids[-1] + 1 if collector.document_ids else 0
    titled, begins = False, True
    for number, line in iterate_lines(path, collector):
        if number == 1:
            titled = line.startswith("# ")
        if not line.strip():
            passage, begins = passage + (not begins), True
        elif not (titled and begins and line.startswith("# ")):
            collector.add({"text": line.strip()}, number, label, document_id=passage)
            begins = False


def build_texts(columns: dict[str, list[str]], source: str, labels: Iterable | None = None) -> Texts:
    """Build a dataset from texts in memory.

    Args:
        columns: Texts of each column, by name.
        source: Name of the data in error messages.
        labels: One label for each row, if there are labels.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"the columns of {source} differ in length: {', '.join(f'{k} {v}' for k, v in lengths.items())}")
    given = None if labels is None else as_label_array(labels, next(iter(lengths.values())), source, "texts")
    (coded,), classes = encode_labels(given)
    store = TextStore(columns)
    return Texts(store, np.arange(len(store)), coded, classes, source=source)

"""A graph as text files: who is linked to whom, and what is known of each.

A file of links has two node names a line, and between them one separator: a tab if the line has one, else a comma if it has one, else
spaces. A line that begins with # or % is a comment, as is what follows a # between spaces where spaces separate the names; any other
# is part of a name. A first line 'source,target' (or from,to, src,dst, head,tail) is a heading. In a folder the file is called
links.txt or edges.txt (or .tsv, .csv), and beside it may stand

    labels.txt      a node and its label a line; nodes that are not named have none
    features.txt    a node and its numbers a line, as many for every node
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.data.common.lines import numbered_lines
from nearfar.data.common.text_rows import Collected, lines_of

LINK_FILES = tuple(f"{name}{suffix}" for name in ("links", "edges") for suffix in (".txt", ".tsv", ".csv"))
HEADINGS = (["source", "target"], ["from", "to"], ["src", "dst"], ["head", "tail"])
COMMENT = ("#", "%")
REMARK = re.compile(r"\s+#(?:\s|$)")
Line = tuple[int, list[str]]
"""The number of a line, and its fields."""


def read_links(file: Path, on_error: str = "stop") -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a graph, its nodes in the order in which they are first met, and the lines that were left out."""
    number: dict[str, int] = {}
    rows = Collected(on_error)
    links = [[number.setdefault(name, len(number)) for name in pair] for _, pair in _pairs(link_lines(file, rows), rows)]
    beside = file.parent if file.name in LINK_FILES else None
    labels = _labels(beside / "labels.txt", number, rows) if beside and (beside / "labels.txt").is_file() else {}
    features = _features(beside / "features.txt", number, rows) if beside and (beside / "features.txt").is_file() else {}
    fields: dict[str, Any] = {"edge_index": np.array(links, dtype=np.int64).reshape(-1, 2).T, "num_nodes": len(number), "names": [*number]}
    if labels:
        fields["y"] = np.array([labels.get(i, "") for i in range(len(number))])
    if features:
        _complete(features, number, file.parent / "features.txt")
        fields["x"] = np.array([features[i] for i in range(len(number))], dtype=np.float32)
    return fields, tuple(rows.skipped)


def link_lines(path: Path, rows: Collected) -> Iterator[Line]:
    """The lines of a file of links, without its heading. Whether they have a weight too is for the caller to say."""
    for i, (number, fields) in enumerate(_named_lines(path, rows)):
        lower = [field.lower() for field in fields]
        if i > 0 or lower[:2] not in HEADINGS or lower[2:] not in ([], ["weight"]):
            yield number, fields


def table_lines(path: Path) -> Iterator[Line]:
    """The lines of a UTF-8 table of numbers, cut at commas, tabs and spaces alike; empty ones and comments are left out."""
    for number, whole in numbered_lines(path):
        line = whole.strip()
        if line and not line.startswith(COMMENT):
            yield number, re.split(r"\s*,\s*|\s+", line)


def _named_lines(path: Path, rows: Collected) -> Iterator[Line]:
    """The lines of a UTF-8 file whose fields may be names; `rows` are told of those that are no text."""
    rows.open(str(path))
    for number, line in lines_of(path, rows):
        if "\0" in line:
            rows.broken(number, "a zero byte: this is no text")
        elif fields := _cut(line):
            yield number, fields


def _cut(line: str) -> list[str]:
    """The fields of a line, none of an empty one or a comment. An empty field is kept, except at the end of a line of tabs."""
    line = line.rstrip()
    if not line or line.lstrip().startswith(COMMENT):
        return []
    plain = REMARK.split(line, maxsplit=1)[0]
    if "\t" not in plain and "," not in plain:
        return plain.split()
    return [field.strip() for field in line.split("\t" if "\t" in line else ",")]


def _pairs(lines: Iterable[Line], rows: Collected) -> Iterator[Line]:
    for number, fields in lines:
        if len(fields) != 2:
            rows.broken(number, f"{len(fields)} entries where 2 were expected")
        elif not all(fields):
            rows.broken(number, "one of the two entries is empty")
        else:
            yield number, fields


def _labels(path: Path, number: dict[str, int], rows: Collected) -> dict[int, str]:
    found: dict[int, str] = {}
    for line, (name, label) in _pairs(_named_lines(path, rows), rows):
        if found.setdefault(number.setdefault(name, len(number)), label) != label:
            rows.broken(line, f"the node {name!r} has a second label")
    return found


def _features(path: Path, number: dict[str, int], rows: Collected) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    width = None
    for line, (name, *values) in _named_lines(path, rows):
        try:
            row = [float(value) for value in (_cut(values[0]) if len(values) == 1 else values)]  # a tab, then numbers between spaces
        except ValueError as e:
            rows.broken(line, str(e))
            continue
        if not name or not row or len(row) != (width or len(row)):
            rows.broken(line, f"{len(row)} features where {width or 'some'} were expected" if name else "a node without a name")
            continue
        width = len(row)
        found[number.setdefault(name, len(number))] = row
    return found


def _complete(rows: dict[int, list[float]], number: dict[str, int], path: Path) -> None:
    for name, i in number.items():
        if i not in rows:
            raise NearfarError(f"{path} has no line for the node {name!r} that could be read")

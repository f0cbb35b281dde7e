"""A graph as text files: who is linked to whom, and what is known of each.

A file of links has two node names a line, between them a tab, a comma or spaces; a line that begins with # or % is a comment. In a
folder it is called links.txt or edges.txt (or .tsv, .csv), and beside it may stand

    labels.txt      a node and its label a line; nodes that are not named have none
    features.txt    a node and its numbers a line, as many for every node
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.data.lines import numbered_lines

LINK_FILES = tuple(f"{name}{suffix}" for name in ("links", "edges") for suffix in (".txt", ".tsv", ".csv"))


def read_links(file: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a graph, and the names of its nodes in the order in which they are first met."""
    number: dict[str, int] = {}
    links = [[number.setdefault(name, len(number)) for name in row] for _, row in table_lines(file, 2)]
    beside = file.parent if file.name in LINK_FILES else None
    labels = _labels(beside / "labels.txt", number) if beside and (beside / "labels.txt").is_file() else {}
    features = _features(beside / "features.txt", number) if beside and (beside / "features.txt").is_file() else {}
    fields: dict[str, Any] = {"edge_index": np.array(links, dtype=np.int64).reshape(-1, 2).T, "num_nodes": len(number)}
    if labels:
        fields["y"] = np.array([labels.get(i, "") for i in range(len(number))])
    if features:
        _complete(features, number, file.parent / "features.txt")
        fields["x"] = np.array([features[i] for i in range(len(number))], dtype=np.float32)
    return fields, tuple(number)


def table_lines(path: Path, columns: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """The lines of a UTF-8 table, with their numbers, cut at commas, tabs or spaces; empty ones and comments are left out."""
    for number, whole in numbered_lines(path):
        line = whole.strip()
        if not line or line[0] in "#%":
            continue
        row = re.split(r"\s*,\s*|\s+", line)
        if columns is not None and len(row) != columns:
            raise NearfarError(f"{path}, line {number}: {len(row)} entries where {columns} were expected")
        yield number, row


def _labels(path: Path, number: dict[str, int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for line, (name, label) in table_lines(path, 2):
        if found.setdefault(number.setdefault(name, len(number)), label) != label:
            raise NearfarError(f"{path}, line {line}: the node {name!r} has a second label")
    return found


def _features(path: Path, number: dict[str, int]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    width = None
    for line, (name, *values) in table_lines(path):
        try:
            row = [float(value) for value in values]
        except ValueError as e:
            raise NearfarError(f"{path}, line {line}: {e}") from e
        if not row or len(row) != (width or len(row)):
            raise NearfarError(f"{path}, line {line}: {len(row)} features where {width or 'some'} were expected")
        width = len(row)
        found[number.setdefault(name, len(number))] = row
    return found


def _complete(rows: dict[int, list[float]], number: dict[str, int], path: Path) -> None:
    for name, i in number.items():
        if i not in rows:
            raise NearfarError(f"{path} has no line for the node {name!r}")

"""Reader for graphs as text files: links, node labels and node features.

A file of links has two node names per line, with one separator between them: a tab if the line has one, else
a comma if it has one, else spaces. A line that begins with # or % is a comment. If spaces separate the names,
the text after a # between spaces is also a comment. Any other # is part of a name. A first line
'source,target' (or from,to, src,dst, head,tail) is a heading. In a folder the file is called links.txt or
edges.txt (or .tsv, .csv). The folder may also contain

    labels.txt      a node and its label per line; nodes that are not listed have no label
    features.txt    a node and its numbers per line, the same count for every node
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.data.common.numbered_lines import read_numbered_lines
from nearfar.data.text.readers import RowCollector, iterate_lines

EDGE_FILE_NAMES = tuple(f"{name}{suffix}" for name in ("links", "edges") for suffix in (".txt", ".tsv", ".csv"))
HEADER_ROWS = (["source", "target"], ["from", "to"], ["src", "dst"], ["head", "tail"])
COMMENT_PREFIXES = ("#", "%")
INLINE_COMMENT = re.compile(r"\s+#(?:\s|$)")
NumberedFields = tuple[int, list[str]]
"""Number of a line, and the fields of the line."""


def read_edge_list(file: Path, on_error: str = "stop") -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read a graph from a file of links.

    Labels and features are read from the same folder if the file has one of the names in `EDGE_FILE_NAMES`.

    Args:
        file: file of links.
        on_error: "stop" to raise at a broken line, "skip" to omit it.

    Returns:
        The fields of the graph, with nodes in order of first occurrence, and descriptions of the skipped
        lines.
    """
    number: dict[str, int] = {}
    rows = RowCollector(on_error)
    links = [[number.setdefault(name, len(number)) for name in pair] for _, pair in _read_pairs(read_edge_rows(file, rows), rows)]
    beside = file.parent if file.name in EDGE_FILE_NAMES else None
    labels = _read_labels(beside / "labels.txt", number, rows) if beside and (beside / "labels.txt").is_file() else {}
    features = _read_features(beside / "features.txt", number, rows) if beside and (beside / "features.txt").is_file() else {}
    fields: dict[str, Any] = {"edge_index": np.array(links, dtype=np.int64).reshape(-1, 2).T, "num_nodes": len(number), "names": [*number]}
    if labels:
        fields["y"] = np.array([labels.get(i, "") for i in range(len(number))])
    if features:
        _check_complete(features, number, file.parent / "features.txt")
        fields["x"] = np.array([features[i] for i in range(len(number))], dtype=np.float32)
    return fields, tuple(rows.skipped)


def read_edge_rows(path: Path, collector: RowCollector) -> Iterator[NumberedFields]:
    """Read the lines of a file of links, without the heading.

    A line may hold a weight as a third field. The caller checks the number of fields.
    """
    for i, (number, fields) in enumerate(_read_named_rows(path, collector)):
        lower = [field.lower() for field in fields]
        if i > 0 or lower[:2] not in HEADER_ROWS or lower[2:] not in ([], ["weight"]):
            yield number, fields


def read_table_rows(path: Path) -> Iterator[NumberedFields]:
    """Read the lines of a UTF-8 table of numbers.

    Commas, tabs and spaces all separate fields. Empty lines and comments are skipped.
    """
    for number, whole in read_numbered_lines(path):
        line = whole.strip()
        if line and not line.startswith(COMMENT_PREFIXES):
            yield number, re.split(r"\s*,\s*|\s+", line)


def _read_named_rows(path: Path, collector: RowCollector) -> Iterator[NumberedFields]:
    """Read the lines of a UTF-8 file whose fields may be names.

    Lines that are not text are reported to `collector`.
    """
    collector.start_file(str(path))
    for number, line in iterate_lines(path, collector):
        if "\0" in line:
            collector.reject_row(number, "a zero byte: this is not a text file")
        elif fields := _split_fields(line):
            yield number, fields


def _split_fields(line: str) -> list[str]:
    """Split a line into fields.

    Return an empty list for an empty line or a comment. An empty field is kept, except at the end of a line
    with tabs.
    """
    line = line.rstrip()
    if not line or line.lstrip().startswith(COMMENT_PREFIXES):
        return []
    plain = INLINE_COMMENT.split(line, maxsplit=1)[0]
    if "\t" not in plain and "," not in plain:
        return plain.split()
    return [field.strip() for field in line.split("\t" if "\t" in line else ",")]


def _read_pairs(lines: Iterable[NumberedFields], collector: RowCollector) -> Iterator[NumberedFields]:
    for number, fields in lines:
        if len(fields) != 2:
            collector.reject_row(number, f"{len(fields)} entries where 2 were expected")
        elif not all(fields):
            collector.reject_row(number, "one of the two entries is empty")
        else:
            yield number, fields


def _read_labels(path: Path, node_ids: dict[str, int], collector: RowCollector) -> dict[int, str]:
    found: dict[int, str] = {}
    for line, (name, label) in _read_pairs(_read_named_rows(path, collector), collector):
        if found.setdefault(node_ids.setdefault(name, len(node_ids)), label) != label:
            collector.reject_row(line, f"the node {name!r} has a second label")
    return found


def _read_features(path: Path, node_ids: dict[str, int], collector: RowCollector) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    width = None
    for line, (name, *values) in _read_named_rows(path, collector):
        try:
            # one field means a tab after the name and spaces between the numbers
            row = [float(value) for value in (_split_fields(values[0]) if len(values) == 1 else values)]
        except ValueError as e:
            collector.reject_row(line, str(e))
            continue
        if not name or not row or len(row) != (width or len(row)):
            collector.reject_row(line, f"{len(row)} features where {width or 'some'} were expected" if name else "a node without a name")
            continue
        width = len(row)
        found[node_ids.setdefault(name, len(node_ids))] = row
    return found


def _check_complete(rows: dict[int, list[float]], node_ids: dict[str, int], path: Path) -> None:
    for name, i in node_ids.items():
        if i not in rows:
            raise NearfarError(f"{path} has no line for the node {name!r} that could be read")

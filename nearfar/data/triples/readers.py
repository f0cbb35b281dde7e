"""File formats of triples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nearfar.data.text.readers import RowCollector, iterate_lines
from nearfar.data.triples.dataset import NumberedTriple


def read_triples(path: Path, collector: RowCollector) -> Iterator[NumberedTriple]:
    """Read numbered triples from a file.

    Broken lines are reported to `collector`.
    """
    collector.start_file(str(path))
    for number, line in iterate_lines(path, collector):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 3 or not all(fields) or "\0" in line:
            collector.reject_row(number, f"expected head, relation and tail, separated by tabs, found {line[:80]!r}")
        else:
            yield number, (fields[0], fields[1], fields[2])

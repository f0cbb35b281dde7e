"""Section of docs/status.md on the provenance of stored rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from stored_rows import Count, count, result_names


def stored_rows() -> list[str]:
    """Return the lines of the section for all result files."""
    return section({name: count(name) for name in result_names()})


def section(counts: Mapping[str, Count]) -> list[str]:
    """Return the lines of the section: rows of unknown commit, and rows whose settings are not the script's."""
    rows, unknown = sum(c.rows for c in counts.values()), sum(c.unknown_commit for c in counts.values())
    whole = "New rows store commit, command, date, machine, settings and a hash of the data."
    before = f"{unknown:,} of {rows:,} stored rows have an unknown commit: they were measured before commits were stored."
    earlier = [f"`{name}` {c.other_settings} of {c.rows}" for name, c in counts.items() if c.other_settings]
    other = f"Rows of earlier settings than the script's, or of unknown settings: {', '.join(earlier) or 'none'}."
    return ["## Stored rows", "", f"{whole} {before}", "", other]

"""Section of docs/status.md on the checks that benchmarks/gpu.py runs on a GPU."""

from __future__ import annotations

from typing import Any


def gpu_checks(found: dict[str, Any] | None) -> list[str]:
    """Return the lines of the section: a row for each check, then the command, the commit and the machine."""
    lines = ["## Checked on a GPU", ""]
    if found is None:
        return [*lines, "The checks of `benchmarks/gpu.py` have not been run."]
    lines += ["| check | result | detail |", "|---|---|---|"]
    for check in found["checks"]:
        lines.append(f"| {_cell(check['name'])} | {'passed' if check['ok'] else '**failed**'} | {_cell(check['detail'])} |")
    machine = found["machine"]
    return [
        *lines,
        "",
        f"`{found['command']}` at commit {found['commit']}, {machine['gpu']}, torch {machine['torch']}.",
    ]


def _cell(text: str) -> str:
    """Return text that fits into one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", r"\|")

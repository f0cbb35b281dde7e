"""What every benchmark shares: results as JSON with the machine they were measured on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the numbers were measured on; nothing that names a host."""
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def write(name: str, result: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    return path


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Processes that measure at the same time change results one after the other."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def known(name: str) -> list[dict[str, Any]]:
    """The rows that are there."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def add(name: str, row: dict[str, Any], by: Sequence[str], about: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> list[dict[str, Any]]:
    """Add a row, instead of an earlier one with the same values of `by`, which also order the rows; all of them are returned.

    `about`: what is said of all rows beside them.
    """
    with taking_turns():
        rows = [r for r in known(name) if any(r[key] != row[key] for key in by)] + [{**row, "machine": machine()}]
        rows.sort(key=lambda r: [r[key] for key in by])
        write(name, {**about(rows), "rows": rows})
    return rows


def keep_part(name: str, part: str, found: dict[str, Any], settings: dict[str, Any], seeded: tuple[str, str, str]) -> None:
    """A result of several parts, measured one at a time. `seeded` names the part with a row a seed, which replaces that of the same seed
    and settings; the measure of its rows; and the title of the mean over those of these settings."""
    rows, metric, title = seeded
    with taking_turns():
        path = RESULTS / f"{name}.json"
        result = json.loads(path.read_text()) if path.exists() else {}
        found = {**found, "machine": machine(), "settings": settings}
        if part == rows:
            others = [r for r in result.get(rows, []) if r["seed"] != found["seed"] or r["settings"] != settings]
            result[rows] = sorted([*others, found], key=lambda r: r["seed"])
            values = [r[metric] for r in result[rows] if r["settings"] == settings]
            result[title] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None}
        else:
            result[part] = found
        path.write_text(json.dumps(result, indent=1) + "\n")


def changes(text: str | None) -> dict[str, Any]:
    """Settings on the command line, as in lr=1e-3,pool=cls: JSON where it is, else the text itself."""
    return {name: _literal(value) for name, value in (pair.split("=", 1) for pair in (text or "").split(",") if pair)}


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def gains_over(tables: Sequence[Mapping[str, Mapping[str, Any]]], metric: str, trained: str, floors: Sequence[str]) -> dict[str, Any]:
    """Of one table of representations a seed: the means, and what training gained over each floor with the standard error of the paired
    differences. Short: fewer than three seeds, or a floor over which it is not more than twice that error."""
    values = {who: [table[who][metric] for table in tables] for who in (trained, *floors)}
    found: dict[str, Any] = {"seeds": len(tables), **{who: mean(of) for who, of in values.items()}}
    short = len(tables) < 3
    for floor in floors:
        gains = [a - b for a, b in zip(values[trained], values[floor], strict=True)]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
        found |= {f"gain over {floor}": mean(gains), f"standard error, {floor}": error}
        short |= error is None or mean(gains) <= 2 * error
    return found | {"short": short}

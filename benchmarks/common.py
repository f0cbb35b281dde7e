"""Result files of the benchmarks: every row is stored with its provenance."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from provenance import FIELDS, rows_of

RESULTS = Path(__file__).parent / "results"


def write(name: str, result: dict[str, Any]) -> Path:
    """Store a result file. At least one object in it must have the fields of `provenance`."""
    if not any(all(field in row for field in FIELDS) for row in rows_of(result)):
        raise ValueError(f"{name}: no row has all of {', '.join(FIELDS)}. Merge provenance(settings, data_fingerprint) into it")
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Hold the lock with which processes change results one after the other."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def stored(name: str) -> dict[str, Any]:
    """Return the content of a result file, empty if there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def known(name: str) -> list[dict[str, Any]]:
    """Return the rows of a result file that is a list of rows."""
    return stored(name).get("rows", [])


def is_measured(name: str, is_current: Callable[[dict[str, Any]], bool], **by: Any) -> bool:
    """Return True if a row with these values and today's settings is stored."""
    return any(all(row[key] == value for key, value in by.items()) and is_current(row) for row in known(name))


def add(name: str, row: dict[str, Any], by: Sequence[str], about: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> list[dict[str, Any]]:
    """Store a row in place of an earlier one with the same values of `by`, and return all rows, ordered by them.

    Args:
        name: of the result file.
        row: has the fields of `provenance`.
        by: the fields that name a row.
        about: returns what is stored next to all rows.
    """
    check_row(name, row)
    with taking_turns():
        rows = [r for r in known(name) if any(r[key] != row[key] for key in by)] + [row]
        rows.sort(key=lambda r: [r[key] for key in by])
        write(name, {**about(rows), "rows": rows})
    return rows


def check_row(name: str, row: Mapping[str, Any]) -> None:
    """Refuse a row without provenance."""
    missing = [field for field in FIELDS if field not in row]
    if missing:
        raise ValueError(f"{name}: the row has no {', '.join(missing)}. Merge provenance(settings, data_fingerprint) into it")


def keep_part(name: str, part: str, found: dict[str, Any], seeded: tuple[str, str, str]) -> None:
    """Store one part of a result whose parts are measured one at a time.

    `seeded` names the part that has a row for each seed, the measure of its rows, and the title of its mean over rows of the same
    settings. A row replaces that of the same seed and settings.
    """
    rows, metric, title = seeded
    check_row(name, found)
    with taking_turns():
        result = stored(name)
        if part == rows:
            others = [r for r in result.get(rows, []) if r["seed"] != found["seed"] or r["settings"] != found["settings"]]
            result[rows] = sorted([*others, found], key=lambda r: r["seed"])
            values = [r[metric] for r in result[rows] if r["settings"] == found["settings"]]
            result[title] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None}
        else:
            result[part] = found
        write(name, result)


def changes(text: str | None) -> dict[str, Any]:
    """Parse settings of the command line, as in lr=1e-3,pool=cls. Values are JSON, or text."""
    return {name: _literal(value) for name, value in (pair.split("=", 1) for pair in (text or "").split(",") if pair)}


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def gains_over(tables: Sequence[Mapping[str, Mapping[str, Any]]], metric: str, trained: str, floors: Sequence[str]) -> dict[str, Any]:
    """Return means over seeds, and the gain of training over each floor with its paired standard error.

    `tables` holds for each seed the values of each representation. Short: fewer than three seeds, or a gain of at most twice its error.
    """
    values = {who: [table[who][metric] for table in tables] for who in (trained, *floors)}
    found: dict[str, Any] = {"seeds": len(tables), **{who: mean(of) for who, of in values.items()}}
    short = len(tables) < 3
    for floor in floors:
        gains = [a - b for a, b in zip(values[trained], values[floor], strict=True)]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
        found |= {f"gain over {floor}": mean(gains), f"standard error, {floor}": error}
        short |= error is None or mean(gains) <= 2 * error
    return found | {"short": short}

"""What every benchmark shares: results as JSON with the machine they were measured on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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

"""Stored rows and the scripts that measured them."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

from provenance import UNKNOWN, rows_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OTHER_NAMES = {
    "cifar/*": "cifar",
    "emoji_trials": "emoji",
    "gpu_checks": "gpu",
    "losses_*": "losses",
    "sentences_trials": "sentences",
    "sound_validation": "sound",
    "sts_*": "sts",
}
"""Result files that are not named after their script."""


@dataclass(frozen=True)
class Count:
    """Number of rows of a result file, and of those whose commit is unknown or whose settings are not the script's."""

    rows: int
    unknown_commit: int
    other_settings: int


def count(name: str) -> Count:
    """Count the rows of a result file."""
    rows = list(rows_of(json.loads((RESULTS / f"{name}.json").read_text())))
    is_current = load_script(script_of(name)).is_current
    return Count(len(rows), sum(row["commit"] == UNKNOWN for row in rows), sum(not is_current(row) for row in rows))


def result_names() -> list[str]:
    """Return the names of all result files."""
    return sorted(path.relative_to(RESULTS).with_suffix("").as_posix() for path in RESULTS.rglob("*.json"))


def script_names() -> list[str]:
    """Return the scripts that are run as programs, such as `digits` and `claims/byol`."""
    return sorted(_programs(HERE)) + sorted(f"claims/{name}" for name in _programs(HERE / "claims"))


def _programs(folder: Path) -> Iterator[str]:
    return (path.stem for path in folder.glob("*.py") if re.search(r"^if __name__ ==", path.read_text(), re.MULTILINE))


def script_of(name: str) -> str:
    """Return the script that writes a result file."""
    return next((script for pattern, script in OTHER_NAMES.items() if fnmatch(name, pattern)), name)


@functools.cache
def load_script(name: str) -> ModuleType:
    """Import a script without running it."""
    for folder in (HERE, HERE / "claims"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    spec = importlib.util.spec_from_file_location(f"benchmark_{name.replace('/', '_')}", HERE / f"{name}.py")
    assert spec is not None, f"{name} is not a Python file"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

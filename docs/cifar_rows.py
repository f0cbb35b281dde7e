"""Comparison of a stored CIFAR-10 row with the settings of benchmarks/cifar.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cifar

UNCOMPARED = ("epochs", "compile", "log_every")
"""Settings that rows store in another form or not at all."""


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has the settings and the protocol of the script."""
    return cifar.is_current(row)


def changed_settings(row: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the script's: name to (value in the row, value in the script)."""
    stored = row["hyperparameters"] | row["train_config"]
    script = cifar.COMMON | cifar.METHODS[row["method"]]
    pairs = {name: (stored.get(name), value) for name, value in script.items() if name not in UNCOMPARED}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

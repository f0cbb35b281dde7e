"""Whether a stored row of CIFAR-10 is of the settings that benchmarks/cifar.py has today."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cifar


def is_current(row: dict[str, Any]) -> bool:
    return cifar.is_current(row["method"], row["seed"])

"""Learning curves of a report: every logged number by training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from nearfar.reports.charts import ChartLine, draw_line_chart, format_number

NON_CURVE_FIELDS = {"step", "epoch", "time", "seconds", "knn_k", "knn_tau"}
"""Logged numbers that are an axis or part of a protocol."""
LEARNING_RATE_FIELDS = {"lr", "learning_rate"}


@dataclass(frozen=True)
class LearningCurve:
    """Chart of one logged number. `svg` is None if no value is finite."""

    name: str
    last_value: str
    svg: Markup | None


def draw_learning_curves(log: Sequence[Mapping[str, Any]]) -> list[LearningCurve]:
    """Draw a chart of every logged number, the loss first and the learning rate last."""
    lines = [line for line in log if "step" in line]
    names = list(dict.fromkeys(name for line in lines for name, value in line.items() if _is_scalar(value)))
    names = [n for n in names if n not in NON_CURVE_FIELDS]
    order = sorted(names, key=lambda n: (n != "loss", n in LEARNING_RATE_FIELDS))
    return [_curve(name, lines) for name in order]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curve(name: str, log: Sequence[Mapping[str, Any]]) -> LearningCurve:
    chosen = [line for line in log if _is_scalar(line.get(name))]
    x, y = (np.array([line[key] for line in chosen], dtype=float) for key in ("step", name))
    lines = (
        [ChartLine(name, x, y, faint=True), ChartLine(name, x, _smooth(y))]
        if len(y) > 60 and name not in LEARNING_RATE_FIELDS
        else [ChartLine(name, x, y)]
    )
    chart = draw_line_chart(lines, f"{name} against steps", height=160 if name in LEARNING_RATE_FIELDS else 220)
    last = f"{format_number(y[-1])} at step {x[-1]:,.0f}" if np.isfinite(y[-1]) else "not finite at the end"
    return LearningCurve(name, last, chart)


def _smooth(y: np.ndarray) -> np.ndarray:
    """Return the mean over a window of a thirtieth of the run.

    Gaps stay gaps. The window is shorter at both ends.
    """
    half = max(1, len(y) // 60)
    good = np.isfinite(y)
    total = np.concatenate([[0], np.cumsum(np.where(good, y, 0.0))])
    count = np.concatenate([[0], np.cumsum(good)])
    at = np.arange(len(y))
    reach = np.minimum(np.minimum(at, len(y) - 1 - at), half)
    low, high = at - reach, at + reach + 1
    return np.where(good, (total[high] - total[low]) / np.maximum(count[high] - count[low], 1), np.nan)

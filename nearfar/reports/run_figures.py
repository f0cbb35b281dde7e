"""Two figures of several runs: alignment against uniformity, and accuracy with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

from nearfar.reports.charts import build_svg, compute_ticks, format_number, get_css_color

LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 52.0, 16.0, 14.0, 44.0


@dataclass(frozen=True)
class RunPoints:
    """Points (x, y) of the runs of one row.

    `faint` rows are baselines, drawn hollow.
    """

    name: str
    points: Sequence[tuple[float, float]]
    faint: bool = False


def draw_plane(rows: Sequence[RunPoints], x_title: str, y_title: str, width: int = 560, height: int = 380) -> Markup:
    """Draw runs as dots and the mean of each row as a ring.

    Whiskers show one standard deviation.
    """
    rows = [row for row in rows if row.points]
    every = np.array([point for row in rows for point in row.points])
    (x0, y0), (x1, y1) = _compute_bounds(every)
    to_x = lambda v: LEFT_MARGIN + (v - x0) / (x1 - x0) * (width - LEFT_MARGIN - RIGHT_MARGIN)
    to_y = lambda v: height - BOTTOM_MARGIN - (v - y0) / (y1 - y0) * (height - TOP_MARGIN - BOTTOM_MARGIN)
    parts = [_frame(x0, x1, y0, y1, to_x, to_y, width, height, x_title, y_title)]
    for i, row in enumerate(rows):
        parts.append(_row_marks(row, f"var(--c{9 if row.faint else i})" if len(rows) <= 9 else get_css_color(i, len(rows)), to_x, to_y))
    return build_svg(width, height, f"{y_title} against {x_title}", parts)


def draw_dots(rows: Sequence[tuple[str, Sequence[float]]], best_baseline: float | None, title: str, width: int = 560) -> Markup:
    """Draw one line per row with runs as dots and their mean as a bar.

    Whiskers show one standard deviation. A dashed line shows the best baseline.
    """
    rows = [(name, values) for name, values in rows if len(values)]
    every = [v for _, values in rows for v in values] + ([] if best_baseline is None else [best_baseline])
    low, high = min(every), max(every)
    low, high = low - 0.06 * (high - low) - 1e-3, high + 0.06 * (high - low) + 1e-3
    left, height = 190.0, 30.0 * len(rows) + BOTTOM_MARGIN + TOP_MARGIN
    to_x = lambda v: left + (v - low) / (high - low) * (width - left - RIGHT_MARGIN)
    parts = []
    for tick in compute_ticks(low, high):
        x, end = to_x(tick), height - BOTTOM_MARGIN
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_MARGIN}" y2="{end}"/>')
        parts.append(f'<text x="{x:.1f}" y="{end + 16}" text-anchor="middle">{format_number(tick)}</text>')
    if best_baseline is not None:
        style = 'stroke="var(--bad)" stroke-dasharray="4 3"'
        parts.append(
            f'<line {style} x1="{to_x(best_baseline):.1f}" x2="{to_x(best_baseline):.1f}" y1="{TOP_MARGIN}" y2="{height - BOTTOM_MARGIN}"/>'
        )
    for i, (name, values) in enumerate(rows):
        y, mean, std = TOP_MARGIN + 30 * i + 15, float(np.mean(values)), _std(values)
        fill = f"var(--c{i})" if len(rows) <= 9 else get_css_color(i, len(rows))
        shown = name if len(name) <= 28 else name[:27] + "…"
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(shown)}<title>{escape(name)}</title></text>')
        parts.append(f'<line stroke="{fill}" stroke-width="2" x1="{to_x(mean - std):.1f}" x2="{to_x(mean + std):.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<line stroke="{fill}" stroke-width="3" x1="{to_x(mean):.1f}" x2="{to_x(mean):.1f}" y1="{y - 8}" y2="{y + 8}"/>')
        parts += [f'<circle cx="{to_x(v):.1f}" cy="{y}" r="3" fill="{fill}" opacity="0.6"/>' for v in values]
    middle = (left + width - RIGHT_MARGIN) / 2
    parts.append(f'<text x="{middle:.1f}" y="{height - 8}" text-anchor="middle">{escape(title)}</text>')
    return build_svg(width, round(height), title, parts)


def _row_marks(row: RunPoints, stroke: str, to_x, to_y) -> str:
    xs, ys = (np.array([point[axis] for point in row.points]) for axis in (0, 1))
    x, y, dx, dy = xs.mean(), ys.mean(), _std(xs), _std(ys)
    title = f"<title>{escape(row.name)}</title>"
    parts = [f'<circle cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="2.6" fill="{stroke}" opacity="0.7"/>' for a, b in row.points]
    ring = f'fill="none" stroke="{stroke}" stroke-width="2"' + (' stroke-dasharray="3 2"' if row.faint else "")
    parts.append(f'<line stroke="{stroke}" x1="{to_x(x - dx):.1f}" x2="{to_x(x + dx):.1f}" y1="{to_y(y):.1f}" y2="{to_y(y):.1f}"/>')
    parts.append(f'<line stroke="{stroke}" x1="{to_x(x):.1f}" x2="{to_x(x):.1f}" y1="{to_y(y - dy):.1f}" y2="{to_y(y + dy):.1f}"/>')
    parts.append(f'<circle cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="7" {ring}>{title}</circle>')
    return f"<g>{''.join(parts)}</g>"


def _frame(x0: float, x1: float, y0: float, y1: float, to_x, to_y, width: int, height: int, x_title: str, y_title: str) -> str:
    floor, parts = height - BOTTOM_MARGIN, []
    for tick in compute_ticks(y0, y1):
        y = to_y(tick)
        parts.append(f'<line class="grid" x1="{LEFT_MARGIN}" x2="{width - RIGHT_MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT_MARGIN - 7}" y="{y + 3.5:.1f}" text-anchor="end">{format_number(tick)}</text>')
    parts += [f'<text x="{to_x(t):.1f}" y="{floor + 16}" text-anchor="middle">{format_number(t)}</text>' for t in compute_ticks(x0, x1, 5)]
    parts.append(f'<line class="axis" x1="{LEFT_MARGIN}" x2="{width - RIGHT_MARGIN}" y1="{floor}" y2="{floor}"/>')
    parts.append(f'<text x="{(LEFT_MARGIN + width - RIGHT_MARGIN) / 2}" y="{height - 8}" text-anchor="middle">{escape(x_title)}</text>')
    parts.append(f'<text x="{LEFT_MARGIN}" y="{TOP_MARGIN - 3}" text-anchor="middle">{escape(y_title)}</text>')
    return "".join(parts)


def _compute_bounds(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a box around the points, with room for rings and whiskers."""
    low, high = points.min(0), points.max(0)
    room = 0.12 * np.maximum(high - low, np.maximum(1e-3, 0.1 * np.abs(high)))
    return low - room, high + room


def _std(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

"""Charts as inline SVG: lines and points.

Colors, fonts and dark mode come from the style sheet of the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

PALETTE_SIZE = 10
"""Number of colors in the style sheet, --c0 … --c9. Larger numbers of groups get evenly spaced hues."""
MAX_LINE_POINTS = 400
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 44.0, 14.0, 10.0, 38.0


@dataclass(frozen=True)
class ChartLine:
    """One curve.

    `color` counts from 0. A faint line stays in the background and out of the legend.
    """

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    color: int = 0
    faint: bool = False


@dataclass(frozen=True)
class Legend:
    """Names next to their CSS colors. `hidden_count` names more are left out."""

    entries: list[tuple[str, str]]
    hidden_count: int = 0


def get_css_color(index: int, count: int) -> str:
    """Return the CSS color of group `index` of `count`.

    The style sheet's colors are used if there are enough. Otherwise hues differ by the golden angle.
    """
    return f"var(--c{index})" if count <= PALETTE_SIZE else f"hsl({index * 137.508 % 360:.0f} 55% {45 + 15 * (index % 2)}%)"


def draw_line_chart(
    lines: Sequence[ChartLine], label: str, width: int = 400, height: int = 210, log_y: bool = False, x_title: str = "step"
) -> Markup | None:
    """Draw curves over a common axis.

    Values that are not finite leave a gap. On a log axis, values that are not positive leave a gap too.

    Args:
        lines: the curves.
        label: description of the chart for screen readers.
        width, height: size in pixels.
        log_y: use a logarithmic vertical axis.
        x_title: title of the horizontal axis.

    Returns:
        The chart as SVG, or None if no value is finite.
    """
    curves = [(line, *_prepare_curve(line, log_y)) for line in lines]
    all_x = np.concatenate([x[np.isfinite(y)] for _, x, y in curves])
    all_y = np.concatenate([y[np.isfinite(y)] for _, _, y in curves])
    if not len(all_y):
        return None
    x_ticks, y_ticks = (
        compute_ticks(all_x.min(), all_x.max(), 5),
        (compute_decade_ticks if log_y else compute_ticks)(all_y.min(), all_y.max()),
    )
    to_x = _build_scale(all_x.min(), all_x.max(), MARGIN_LEFT, width - MARGIN_RIGHT)
    to_y = _build_scale(min(y_ticks[0], all_y.min()), max(y_ticks[-1], all_y.max()), height - MARGIN_BOTTOM, MARGIN_TOP)
    parts = [_axes(x_ticks, y_ticks, to_x, to_y, width, height, log_y, x_title)]
    for line, x, y in curves:
        style = "faint" if line.faint else "line"
        parts.append(f'<path class="{style}" style="stroke:var(--c{line.color % PALETTE_SIZE})" d="{_path(to_x(x), to_y(y))}"/>')
    return build_svg(width, height, label, parts)


def draw_scatter(
    points: np.ndarray,
    label: str,
    groups: np.ndarray | None = None,
    titles: Sequence[str] | None = None,
    width: int = 760,
    height: int = 560,
) -> Markup:
    """Draw points in the plane with equal scales and no axes.

    Args:
        points: coordinates, (n, 2).
        label: description of the chart for screen readers.
        groups: group of each point (0, 1, …), which sets its color, (n,).
        titles: text of each point, shown under the pointer.
        width, height: size in pixels.

    Returns:
        The chart as SVG.
    """
    low, high = points.min(0), points.max(0)
    per_unit = min((width - 56) / max(high[0] - low[0], 1e-9), (height - 56) / max(high[1] - low[1], 1e-9))
    centre = (low + high) / 2
    at = (points - centre) * per_unit * [1, -1] + [width / 2, height / 2]
    count = int(groups.max()) + 1 if groups is not None else 1
    radius = 2.4 if len(points) > 800 else 3.4
    marks = []
    for g in range(count):
        members = np.flatnonzero(groups == g) if groups is not None else np.arange(len(points))
        circles = "".join(_circle(at[i], radius, titles[int(i)] if titles is not None else "") for i in members)
        marks.append(f'<g style="fill:{get_css_color(g, count)}">{circles}</g>')
    return build_svg(width, height, label, marks, "points")


def build_legend(names: Sequence[str], max_names: int = 24, colors: Sequence[str] | None = None) -> Legend:
    """Build the legend of a chart. Names beyond `max_names` are counted only."""
    colors = colors or [get_css_color(i, len(names)) for i in range(len(names))]
    entries = list(zip(names, colors, strict=True))
    return Legend(entries[:max_names], max(0, len(names) - max_names))


def build_svg(width: int, height: int, label: str, parts: Sequence[str], css_class: str = "chart") -> Markup:
    """Return a chart as SVG that templates insert without escaping.

    Args:
        width, height: size in pixels.
        label: description of the chart for screen readers, plain text.
        parts: SVG elements. Texts within them must be escaped.
        css_class: class of the style sheet.
    """
    head = f'<svg class="{css_class}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup("".join([head, *parts, "</svg>"]))


def compute_ticks(low: float, high: float, target_count: int = 4) -> list[float]:
    """Return about `target_count` round numbers within [low, high].

    The step is 1, 2 or 5 times a power of ten.
    """
    if high <= low:
        return [low]
    raw = (high - low) / target_count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)] or [low]


def compute_decade_ticks(low: float, high: float) -> list[float]:
    """Return whole exponents that enclose [low, high], both base-ten logarithms.

    There are about six at most. The highest exponent is always included.
    """
    first, last = math.floor(low), math.ceil(high)
    stride = max(1, math.ceil((last - first) / 5))
    return [float(e) for e in range(last, first - 1, -stride)][::-1]


def thin_curve(x: np.ndarray, y: np.ndarray, max_points: int = MAX_LINE_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Reduce a curve to about `max_points` points and keep every spike.

    The result holds the smallest and the largest value of each section, in order.
    """
    if len(x) <= max_points:
        return x, y
    keep = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), max_points // 2):
        values = y[part]
        keep |= {int(part[0])} if np.isnan(values).any() else {int(part[values.argmin()]), int(part[values.argmax()])}
    index = np.array(sorted(keep))
    return x[index], y[index]


def format_number(value: float) -> str:
    """Format a number for an axis: 1500000 -> 1.5M, 20000 -> 20k, 0.0005 -> 5e-4."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    if 0 < abs(value) < 1e-2:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def _prepare_curve(line: ChartLine, log_y: bool) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    y = np.where(np.isfinite(y), y, np.nan)
    if log_y:
        y = np.log10(np.where(y > 0, y, np.nan))
    return thin_curve(x, y)


def _build_scale(low: float, high: float, start: float, end: float):
    """Return the linear map of [low, high] onto [start, end].

    A single value maps to the middle.
    """
    if high <= low:
        return lambda v: np.full_like(np.asarray(v, dtype=float), (start + end) / 2)
    return lambda v: start + (np.asarray(v, dtype=float) - low) / (high - low) * (end - start)


def _axes(x_ticks, y_ticks, to_x, to_y, width: int, height: int, log_y: bool, x_title: str) -> str:
    floor = height - MARGIN_BOTTOM
    parts = []
    for tick in y_ticks:
        y = float(to_y(tick))
        text = f'10<tspan dy="-4" font-size="8">{tick:.0f}</tspan>'.replace(">-", ">−") if log_y else format_number(tick)
        parts.append(f'<line class="grid" x1="{MARGIN_LEFT}" x2="{width - MARGIN_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{MARGIN_LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>')
    parts += [f'<text x="{float(to_x(tick)):.1f}" y="{floor + 16}" text-anchor="middle">{format_number(tick)}</text>' for tick in x_ticks]
    parts.append(f'<line class="axis" x1="{MARGIN_LEFT}" x2="{width - MARGIN_RIGHT}" y1="{floor}" y2="{floor}"/>')
    middle = (MARGIN_LEFT + width - MARGIN_RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{floor + 33}" text-anchor="middle">{escape(x_title)}</text>')
    return "".join(parts)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    out, pen = [], "M"
    for a, b in zip(x, y, strict=True):
        if math.isnan(b):
            pen = "M"
        else:
            out.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
    return "".join(out)


def _circle(at: np.ndarray, radius: float, title: str) -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius}">{inside}</circle>'

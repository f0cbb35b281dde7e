"""Comparison of runs as one HTML file without external files: table, figures and differing settings."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass

from markupsafe import Markup

from nearfar.core.files import atomic_write
from nearfar.evaluate.result_table import GEOMETRY_COLUMNS
from nearfar.reports.charts import Legend, build_legend, get_css_color
from nearfar.reports.comparison_table import Comparison, ComparisonRow
from nearfar.reports.html_templates import render_template
from nearfar.reports.run_figures import RunPoints, draw_dots, draw_plane


def write_comparison(path: str | os.PathLike, comparison: Comparison) -> None:
    """Write the HTML page of a comparison."""
    with atomic_write(path) as f:
        f.write(render_comparison(comparison).encode())


def render_comparison(comparison: Comparison) -> str:
    """Return the HTML page of a comparison."""
    return render_template(
        "comparison.html",
        comparison=comparison,
        columns=comparison.columns | comparison.costs,
        run_count=sum(len(row.runs) for row in comparison.rows),
        plane=_draw_plane(comparison),
        accuracies=_draw_accuracies(comparison),
        legend_of_rows=_build_legend(comparison),
    )


def _draw_plane(comparison: Comparison) -> Markup | None:
    marks = [RunPoints(row.name, _points(row)) for row in comparison.rows]
    marks += [RunPoints(row.name, _points(row), faint=True) for row in comparison.baselines if "encoder" in row.name]
    if not any(mark.points for mark in marks):
        return None
    return draw_plane(marks, "uniformity: how evenly all lie", "alignment: how far views lie apart")


def _points(row: ComparisonRow) -> list[tuple[float, float]]:
    return [(v["uniformity"], v["alignment"]) for v in row.values if "alignment" in v and "uniformity" in v]


@dataclass(frozen=True)
class _AccuracyFigure:
    """Figure of the first accuracy of all runs. `best_baseline` is None if there is no baseline."""

    title: str
    best_baseline: float | None
    svg: Markup


def _draw_accuracies(comparison: Comparison) -> _AccuracyFigure | None:
    column = next((c for c in comparison.columns if c not in GEOMETRY_COLUMNS), None)
    if column is None:
        return None
    floors = [statistics.fmean(row.get_values(column)) for row in comparison.baselines if row.get_values(column)]
    floor = 100 * max(floors) if floors else None
    drawn = draw_dots([(row.name, [100 * v for v in row.get_values(column)]) for row in comparison.rows], floor, "accuracy in per cent")
    return _AccuracyFigure(comparison.columns[column], floor, drawn)


def _build_legend(comparison: Comparison) -> Legend:
    count = len(comparison.rows)
    colors = [f"var(--c{i})" if count < 9 else get_css_color(i, count) for i in range(count)]
    return build_legend([row.name for row in comparison.rows], colors=colors)

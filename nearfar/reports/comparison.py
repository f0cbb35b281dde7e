"""Comparison of runs as one HTML file without external files: table, figures and differing settings."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from html import escape

from nearfar.core.files import atomic_write
from nearfar.evaluate.result_table import GEOMETRY_COLUMNS
from nearfar.reports.charts import draw_legend, get_css_color
from nearfar.reports.comparison_table import Comparison, ComparisonRow
from nearfar.reports.page import render_page, render_section
from nearfar.reports.run_figures import RunPoints, draw_dots, draw_plane


def write_comparison(path: str | os.PathLike, comparison: Comparison) -> None:
    """Write the HTML page of a comparison."""
    with atomic_write(path) as f:
        f.write(render_comparison(comparison).encode())


def render_comparison(comparison: Comparison) -> str:
    """Return the HTML page of a comparison."""
    parts = [_head(comparison), _table(comparison), _figures(comparison), _settings(comparison)]
    return render_page("Runs compared", "\n".join(part for part in parts if part))


def _head(comparison: Comparison) -> str:
    count = sum(len(row.runs) for row in comparison.rows)
    said = "".join(f'<p class="verdict"><b>Not comparable:</b> {escape(line)}</p>' for line in comparison.incompatibilities)
    lede = f"{count} runs in {len(comparison.rows)} rows: runs that differ only in the seed are one."
    return f'<header>\n<h1>Runs compared</h1>\n<p class="lede">{lede}</p>\n{said}</header>'


def _table(comparison: Comparison) -> str:
    columns = comparison.columns | comparison.costs
    rows = [_row(row, list(columns), "trained") for row in comparison.rows] + [_row(row, list(columns), "") for row in comparison.baselines]
    notes = "".join(f"<p>{escape(line)}</p>" for line in comparison.notes)
    return render_section(
        "table", "Results and cost", _render_scrollable_table(["", "n", *columns.values()], rows) + f'<div class="notes">{notes}</div>'
    )


def _row(row: ComparisonRow, columns: Sequence[str], style: str) -> str:
    cells = "".join(f"<td>{row.format_cell(c)}</td>" for c in columns)
    return f'<tr class="{style}"><td>{escape(row.name)}</td><td>{len(row.values)}</td>{cells}</tr>'


def _figures(comparison: Comparison) -> str:
    shown = [chart for chart in (_plane(comparison), _accuracies(comparison)) if chart]
    return render_section("figure", "Figure", f'<div class="charts">{"".join(shown)}</div>' + _legend(comparison)) if shown else ""


def _plane(comparison: Comparison) -> str:
    marks = [RunPoints(row.name, _points(row)) for row in comparison.rows]
    marks += [RunPoints(row.name, _points(row), faint=True) for row in comparison.baselines if "encoder" in row.name]
    if not any(mark.points for mark in marks):
        return ""
    caption = "<b>Alignment and uniformity</b><span>lower is better on both; either alone is easy</span>"
    drawn = draw_plane(marks, "uniformity: how evenly all lie", "alignment: how far views lie apart")
    return f"<figure><figcaption>{caption}</figcaption>{drawn}</figure>"


def _points(row: ComparisonRow) -> list[tuple[float, float]]:
    return [(v["uniformity"], v["alignment"]) for v in row.values if "alignment" in v and "uniformity" in v]


def _accuracies(comparison: Comparison) -> str:
    column = next((c for c in comparison.columns if c not in GEOMETRY_COLUMNS), None)
    if column is None:
        return ""
    floors = [statistics.fmean(row.get_values(column)) for row in comparison.baselines if row.get_values(column)]
    floor = 100 * max(floors) if floors else None
    said = "<span>dashed: the best baseline</span>" if floor is not None else ""
    drawn = draw_dots([(row.name, [100 * v for v in row.get_values(column)]) for row in comparison.rows], floor, "accuracy in per cent")
    return f"<figure><figcaption><b>{escape(comparison.columns[column])}</b>{said}</figcaption>{drawn}</figure>"


def _legend(comparison: Comparison) -> str:
    count = len(comparison.rows)
    return draw_legend(
        [row.name for row in comparison.rows], colors=[f"var(--c{i})" if count < 9 else get_css_color(i, count) for i in range(count)]
    )


def _settings(comparison: Comparison) -> str:
    if not comparison.differing_settings:
        return ""
    rows = [
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>'
        for name, values in comparison.differing_settings.items()
    ]
    heads = ["setting", *(row.name for row in comparison.rows)]
    return render_section(
        "settings", "What differs", _render_scrollable_table(heads, rows), "Settings that are the same in all rows are left out."
    )


def _render_scrollable_table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in heads)
    return f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'

"""A comparison as one HTML file that opens anywhere, offline: the table, the figures, the settings that differ."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from html import escape

from nearfar.api.compare import Comparison, Row
from nearfar.core.files import atomic_write
from nearfar.evaluate.result_table import GEOMETRY
from nearfar.reports.charts import colour, legend
from nearfar.reports.page import page, section
from nearfar.reports.run_figures import Marks, dots, plane


def write_comparison(path: str | os.PathLike, found: Comparison) -> None:
    with atomic_write(path) as f:
        f.write(render_page(found).encode())


def render_page(found: Comparison) -> str:
    parts = [_head(found), _table(found), _figures(found), _settings(found)]
    return page("Runs compared", "\n".join(part for part in parts if part))


def _head(found: Comparison) -> str:
    count = sum(len(row.runs) for row in found.rows)
    said = "".join(f'<p class="verdict"><b>Not comparable:</b> {escape(line)}</p>' for line in found.differences)
    lede = f"{count} runs in {len(found.rows)} rows: runs that differ only in the seed are one."
    return f'<header>\n<h1>Runs compared</h1>\n<p class="lede">{lede}</p>\n{said}</header>'


def _table(found: Comparison) -> str:
    columns = found.columns | found.costs
    rows = [_row(row, list(columns), "trained") for row in found.rows] + [_row(row, list(columns), "") for row in found.floors]
    notes = "".join(f"<p>{escape(line)}</p>" for line in found.notes)
    return section("table", "Results and cost", _scrolled(["", "n", *columns.values()], rows) + f'<div class="notes">{notes}</div>')


def _row(row: Row, columns: Sequence[str], style: str) -> str:
    cells = "".join(f"<td>{row.cell(c)}</td>" for c in columns)
    return f'<tr class="{style}"><td>{escape(row.name)}</td><td>{len(row.values)}</td>{cells}</tr>'


def _figures(found: Comparison) -> str:
    shown = [chart for chart in (_plane(found), _accuracies(found)) if chart]
    return section("figure", "Figure", f'<div class="charts">{"".join(shown)}</div>' + _legend(found)) if shown else ""


def _plane(found: Comparison) -> str:
    marks = [Marks(row.name, _points(row)) for row in found.rows]
    marks += [Marks(row.name, _points(row), faint=True) for row in found.floors if "encoder" in row.name]
    if not any(mark.points for mark in marks):
        return ""
    caption = "<b>Alignment and uniformity</b><span>lower is better on both; either alone is easy</span>"
    drawn = plane(marks, "uniformity: how evenly all lie", "alignment: how far views lie apart")
    return f"<figure><figcaption>{caption}</figcaption>{drawn}</figure>"


def _points(row: Row) -> list[tuple[float, float]]:
    return [(v["uniformity"], v["alignment"]) for v in row.values if "alignment" in v and "uniformity" in v]


def _accuracies(found: Comparison) -> str:
    column = next((c for c in found.columns if c not in GEOMETRY), None)
    if column is None:
        return ""
    floors = [statistics.fmean(row.of(column)) for row in found.floors if row.of(column)]
    floor = 100 * max(floors) if floors else None
    said = "<span>dashed: the best baseline</span>" if floor is not None else ""
    drawn = dots([(row.name, [100 * v for v in row.of(column)]) for row in found.rows], floor, "accuracy in per cent")
    return f"<figure><figcaption><b>{escape(found.columns[column])}</b>{said}</figcaption>{drawn}</figure>"


def _legend(found: Comparison) -> str:
    count = len(found.rows)
    return legend([row.name for row in found.rows], colours=[f"var(--c{i})" if count < 9 else colour(i, count) for i in range(count)])


def _settings(found: Comparison) -> str:
    if not found.settings:
        return ""
    rows = [
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>'
        for name, values in found.settings.items()
    ]
    heads = ["setting", *(row.name for row in found.rows)]
    return section("settings", "What differs", _scrolled(heads, rows), "Settings that are the same in all rows are left out.")


def _scrolled(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in heads)
    return f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'

"""Report of a run: a single HTML file without external files.

    content = ReportContent(title="SimCLR on digits", card=SimCLR.card, table=compare(…), log=…)
    write_report("report.html", content)

Every part is optional. Parts without content are left out. The template `report.html` holds the HTML. Every
string that comes from data is escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor

from nearfar.core import Card
from nearfar.core.files import atomic_write
from nearfar.evaluate import Projection2D, ResultTable
from nearfar.reports.charts import ChartLine, Legend, build_legend, draw_line_chart, draw_scatter
from nearfar.reports.html_templates import render_template
from nearfar.reports.learning_curves import draw_learning_curves
from nearfar.reports.mathml import render_equation
from nearfar.reports.report_samples import ImageBatch, Labels, SampleNeighbors, build_neighbor_table, build_pair_table, get_class_name

Vector = Tensor | np.ndarray | Sequence[float]
ADDRESS_PATTERN = re.compile(r"(https?://[^\s<>&\"']+[^\s<>&\"'.,;)])")
"""Web address in a text, without the punctuation after it."""


@dataclass(frozen=True)
class ReportContent:
    """Content of a report as plain data."""

    title: str
    summary: str = ""
    card: Card | None = None
    table: ResultTable | None = None
    log: Sequence[Mapping[str, Any]] = ()
    """Lines of the metrics file: dicts with a "step" and any number of scalars."""
    pairs: tuple[ImageBatch, ImageBatch] | tuple[list[Any], list[Any]] | None = None
    """Two views of the same samples as model inputs, row by row: images with values in [0, 1], strings, or
    objects with a `build_sheet` method."""
    map: Projection2D | None = None
    labels: Labels | None = None
    """Labels of the features behind `map`. The map's `rows` select its own."""
    class_names: Sequence[str] | None = None
    neighbors: SampleNeighbors | None = None
    spectra: Mapping[str, Vector] = field(default_factory=dict)
    """Normalized singular values by representation name. The first one has the accent color."""
    stored_config: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None


def write_report(path: str | os.PathLike, content: ReportContent) -> None:
    """Write the report as an HTML file."""
    with atomic_write(path) as f:
        f.write(render_report(content).encode())


def render_report(content: ReportContent) -> str:
    """Return the report as HTML."""
    return render_template(
        "report.html",
        content=content,
        accuracies=_compare_accuracies(content.table),
        equation=render_equation(content.card.equation) if content.card else None,
        card_fields=_list_card_fields(content.card),
        evaluation_rows=_build_evaluation_rows(content.table),
        curves=draw_learning_curves(content.log),
        pairs=build_pair_table(content.pairs),
        map=_draw_map(content),
        neighbors=build_neighbor_table(content.neighbors, content.class_names),
        spectrum=_draw_spectrum(content),
        config=dict(_flatten_config(content.stored_config)),
        about=_describe_run(content),
    )


@dataclass(frozen=True)
class _Accuracy:
    """Accuracy of the trained representation and of the best baseline, in per cent."""

    title: str
    percent: float
    baseline: str = ""
    baseline_percent: float = 0.0

    @property
    def is_behind(self) -> bool:
        return bool(self.baseline) and self.percent < self.baseline_percent


def _compare_accuracies(table: ResultTable | None) -> list[_Accuracy]:
    """Return the accuracies of the trained representation next to the best baselines."""
    trained = [r for r in table.results if not r["baseline"]] if table else []
    if table is None or not trained:
        return []
    found = []
    for column, title in table.accuracy_columns.items():
        if column not in trained[-1]:
            continue
        accuracy = _Accuracy(title, 100 * trained[-1][column])
        rivals = [r for r in table.results if r["baseline"] and column in r]
        if rivals:
            best = max(rivals, key=lambda r: r[column])
            accuracy = replace(accuracy, baseline=best["representation"], baseline_percent=100 * best[column])
        found.append(accuracy)
    return found


def _list_card_fields(card: Card | None) -> dict[str, list[tuple[str, bool]]]:
    """Return the fields of a card as pieces of text.

    The second value of a piece is True for a web address.
    """
    names = [f.name for f in fields(Card) if f.name not in ("title", "equation")] if card else []
    return {name.replace("_", " "): _split_addresses(_format_field(getattr(card, name))) for name in names}


def _format_field(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _split_addresses(text: str) -> list[tuple[str, bool]]:
    pieces = ADDRESS_PATTERN.split(text)  # text and addresses in turn
    return [(piece, i % 2 == 1) for i, piece in enumerate(pieces) if piece]


@dataclass(frozen=True)
class _EvaluationRow:
    """Row of the table of results.

    A cell is a value, and True if the value is the best of its column.
    """

    name: str
    is_baseline: bool
    cells: list[tuple[str, bool]]


def _build_evaluation_rows(table: ResultTable | None) -> list[_EvaluationRow]:
    if table is None:
        return []
    best = {column: table.find_best_rows(column) for column in table.columns}
    return [
        _EvaluationRow(r["representation"], r["baseline"], [(table.format_cell(i, c), i in best[c]) for c in table.columns])
        for i, r in enumerate(table.results)
    ]


@dataclass(frozen=True)
class _Map:
    """Map of the features. `legend` is None if there are no labels."""

    sample_count: int
    method: str
    svg: Markup
    legend: Legend | None = None


def _draw_map(content: ReportContent) -> _Map | None:
    if (view := content.map) is None:
        return None
    found = len(view.points), view.method
    description = f"map of the features by {view.method}"
    if content.labels is None:
        return _Map(*found, draw_scatter(view.points, description, titles=[f"sample {i}" for i in view.rows]))
    labels = np.asarray(torch.as_tensor(content.labels).cpu())[view.rows]
    classes, groups = np.unique(labels, return_inverse=True)
    names = [get_class_name(c, content.class_names) for c in classes]
    titles = [f"{names[g]}, sample {i}" for g, i in zip(groups, view.rows, strict=True)]
    return _Map(*found, draw_scatter(view.points, description, groups, titles), build_legend(names))


@dataclass(frozen=True)
class _Spectrum:
    """Chart of singular values. `svg` is None if no value is finite."""

    svg: Markup | None
    legend: Legend


def _draw_spectrum(content: ReportContent) -> _Spectrum | None:
    if not content.spectra:
        return None
    lines = []
    for i, (name, values) in enumerate(content.spectra.items()):
        y = np.asarray(torch.as_tensor(values).cpu(), dtype=float)
        # Values below the rounding of float32 features mean zero. Their size has no meaning.
        lines.append(ChartLine(name, np.arange(1, len(y) + 1), np.maximum(y, 1e-6), color=i))
    chart = draw_line_chart(lines, "singular values of the centered features", 480, 260, log_y=True, x_title="direction")
    return _Spectrum(chart, build_legend([line.name for line in lines], colors=[f"var(--c{line.color % 10})" for line in lines]))


def _flatten_config(stored_config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested settings to `outer.inner`, in order."""
    rows = []
    for name, value in stored_config.items():
        rows += _flatten_config(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return rows


def _describe_run(content: ReportContent) -> list[str]:
    """Return the training time and the versions of the libraries."""
    seconds = [] if content.seconds is None else [_duration(content.seconds)]
    return [*seconds, *(f"{name} {version}" for name, version in content.versions.items())]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

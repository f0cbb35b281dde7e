"""Report of a run: a single HTML file without external files.

    content = ReportContent(title="SimCLR on digits", card=SimCLR.card, table=compare(…), log=…)
    write_report("report.html", content)

Every part is optional. Parts without content are left out. Every string that comes from data is escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import Card
from nearfar.core.files import atomic_write
from nearfar.evaluate import Projection2D, ResultTable, find_nearest_neighbors
from nearfar.modalities.sprites import TextSheet, build_sprite_sheet
from nearfar.reports.charts import ChartLine, draw_legend, draw_line_chart, draw_scatter
from nearfar.reports.learning_curves import render_learning_curves
from nearfar.reports.mathml import render_equation
from nearfar.reports.page import render_facts, render_page, render_section

ImageBatch = Float[Tensor, "n c h w"] | Float[np.ndarray, "n c h w"]
Vector = Tensor | np.ndarray | Sequence[float]
Labels = Tensor | np.ndarray | Sequence[int]


@dataclass(frozen=True)
class SampleNeighbors:
    """Test samples, their nearest training samples (nearest first), and labels if there are any.

    Samples are images, strings, or objects with a `build_sheet` method.
    """

    queries: Float[Tensor, "q c h w"] | Float[np.ndarray, "q c h w"] | list[Any]
    neighbors: Float[Tensor, "q k c h w"] | Float[np.ndarray, "q k c h w"] | list[list[Any]]
    similarity: Float[Tensor, "q k"] | Float[np.ndarray, "q k"]
    query_labels: Labels | None = None
    neighbor_labels: Tensor | np.ndarray | None = None
    across_splits: bool = True
    """True if queries are from a test split and neighbors from a training split."""


SampleRenderer = Callable[[Tensor], Any]
"""Function from sample ids to images or strings. Only shown samples are read."""


@dataclass(frozen=True)
class ReportContent:
    """Content of a report as plain data."""

    title: str
    summary: str = ""
    card: Card | None = None
    table: ResultTable | None = None
    log: Sequence[Mapping[str, Any]] = ()
    """Lines of the metrics file: dicts with a "step" and any number of scalars."""
    pairs: tuple[ImageBatch, ImageBatch] | tuple[list[str], list[str]] | None = None
    """Two views of the same samples as model inputs, row by row. Images have values in [0, 1]; or strings."""
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
    parts = [_head(content), _method(content), _evaluation(content), render_learning_curves(content.log), _pairs(content), _map(content),
             _render_neighbors(content), _spectrum(content), _again(content)]  # fmt: skip
    return render_page(content.title, "\n".join(p for p in parts if p))


def find_neighbors(
    train_features: Tensor, test_features: Tensor, render_train: SampleRenderer, render_test: SampleRenderer,
    queries: Sequence[int], k: int = 8,
    train_labels: Tensor | None = None, test_labels: Tensor | None = None, across_splits: bool = True,
) -> SampleNeighbors:  # fmt: skip
    """Find the `k` training samples nearest to the test samples `queries`.

    Args:
        train_features: (n, d).
        test_features: (m, d).
        render_train, render_test: functions that render samples by id.
        queries: ids of test samples.
        k: number of neighbors.
        train_labels, test_labels: labels of all samples, (n,) and (m,), or None.
        across_splits: False if both features are from the same split.
    """
    chosen = torch.as_tensor(queries)
    similarity, index = find_nearest_neighbors(train_features, test_features[chosen.to(test_features.device)], k)
    index, labels = index.cpu(), {}
    if train_labels is not None and test_labels is not None:
        labels = {"query_labels": test_labels.cpu()[chosen], "neighbor_labels": train_labels.cpu()[index]}
    return SampleNeighbors(render_test(chosen), render_train(index), similarity.cpu(), **labels, across_splits=across_splits)


def _head(content: ReportContent) -> str:
    lede = f'<p class="lede">{escape(content.summary)}</p>' if content.summary else ""
    return f"<header>\n<h1>{escape(content.title)}</h1>\n{lede}\n{_figures(content.table)}</header>"


def _figures(table: ResultTable | None) -> str:
    """Render the accuracies of the trained representation next to the best baselines."""
    trained = [i for i, r in enumerate(table.results) if not r["baseline"]] if table else []
    if table is None or not trained:
        return ""
    boxes = []
    for column, title in table.accuracy_columns.items():
        if column not in table.results[trained[-1]]:
            continue
        rivals = [r for r in table.results if r["baseline"] and column in r]
        rival = max(rivals, key=lambda r: r[column]) if rivals else None
        against = f"best baseline {100 * rival[column]:.1f} %, {escape(rival['representation'])}" if rival else ""
        value = table.results[trained[-1]][column]
        behind = ' class="behind"' if rival and value < rival[column] else ""
        shown = f"<b{behind}>{100 * value:.1f}<small>%</small></b>"
        boxes.append(f'<div><span>{escape(title)}</span>{shown}<span class="quiet">{against}</span></div>')
    return f'<div class="figures">{"".join(boxes)}</div>' if boxes else ""


def _method(content: ReportContent) -> str:
    if (card := content.card) is None:
        return ""
    rows = {f.name: _link_addresses(str(getattr(card, f.name))) for f in fields(Card) if f.name not in ("title", "equation")}
    drawn = f'<div class="equation">{render_equation(card.equation)}</div>' if card.equation else ""
    return render_section("method", card.title, drawn + render_facts(rows))


def _link_addresses(text: str) -> str:
    """Return escaped text with web addresses as links.

    The page itself never loads them.
    """
    return re.sub(r"https?://[^\s<>&\"']+[^\s<>&\"'.,;)]", lambda m: f'<a href="{m[0]}" rel="noreferrer">{m[0]}</a>', escape(text))


def _evaluation(content: ReportContent) -> str:
    if (table := content.table) is None:
        return ""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in ("representation", *table.columns.values()))
    body = []
    for i, result in enumerate(table.results):
        cells = "".join(f"<td{' class=best' if i in table.find_best_rows(c) else ''}>{table.format_cell(i, c)}</td>" for c in table.columns)
        style = "" if result["baseline"] else ' class="trained"'
        body.append(f"<tr{style}><td>{escape(result['representation'])}</td>{cells}</tr>")
    verdict = f'<p class="verdict">{escape(table.verdict)}</p>' if table.verdict else ""
    notes = "".join(f"<p>{escape(line)}</p>" for line in table.notes)
    shown = f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    return render_section("evaluation", "Evaluation", f'{shown}{verdict}<div class="notes">{notes}</div>')


def _pairs(content: ReportContent) -> str:
    if content.pairs is None or not len(content.pairs[0]):
        return ""
    sheet, n = _sheet(*content.pairs), len(content.pairs[0])
    shown = "".join(
        f'<div class="pair">{sheet.render_cell(i, "one view")}{sheet.render_cell(n + i, "the other view")}</div>' for i in range(n)
    )
    intro = "Views of the same sample, as the model saw them: training places them near each other."
    return render_section("pairs", "Positive pairs", f'<div class="pairs" style="{sheet.style}">{shown}</div>', intro)


def _sheet(*parts: Any) -> Any:
    """Return the sheet of all samples of the parts, in order."""
    if isinstance(parts[0], list):
        samples = [sample for part in parts for sample in part]
        return TextSheet(samples) if isinstance(samples[0], str) else samples[0].build_sheet(samples)
    return build_sprite_sheet(torch.cat([torch.as_tensor(part).detach().cpu().float() for part in parts]))


def _map(content: ReportContent) -> str:
    if (view := content.map) is None:
        return ""
    intro = f"{len(view.points):,} samples by {view.method}. Near points are alike in the embedding; distances between groups mean little."
    label = f"map of the features by {view.method}"
    if content.labels is None:
        return render_section("map", "Map", draw_scatter(view.points, label, titles=[f"sample {i}" for i in view.rows]), intro)
    labels = np.asarray(torch.as_tensor(content.labels).cpu())[view.rows]
    classes, groups = np.unique(labels, return_inverse=True)
    names = [_name(c, content.class_names) for c in classes]
    titles = [f"{names[g]}, sample {i}" for g, i in zip(groups, view.rows, strict=True)]
    return render_section("map", "Map", draw_scatter(view.points, label, groups, titles) + draw_legend(names), intro)


def _name(label: Any, names: Sequence[str] | None) -> str:
    label = int(label)
    return str(names[label]) if names is not None and 0 <= label < len(names) else str(label)


def _render_neighbors(content: ReportContent) -> str:
    if (near := content.neighbors) is None:
        return ""
    count, k = len(near.neighbors), len(near.neighbors[0])
    sheet = _sheet(near.queries, *near.neighbors)
    rows = []
    for q in range(count):
        label = None if near.query_labels is None else int(near.query_labels[q])
        own = "sample" if label is None else _name(label, content.class_names)
        tiles = [_tile(sheet.render_cell(q, f"{'test ' if near.across_splits else ''}sample: {own}"), own)]
        others, agreeing = [], 0
        for j in range(k):
            caption, agrees = f"{float(near.similarity[q, j]):.2f}", True
            if label is not None and near.neighbor_labels is not None:
                agrees, caption = int(near.neighbor_labels[q, j]) == label, _name(near.neighbor_labels[q, j], content.class_names)
            agreeing += agrees
            title = f"neighbor {j + 1}: {caption}, similarity {float(near.similarity[q, j]):.3f}"
            others.append(_tile(sheet.render_cell(count + q * k + j, title), caption, agrees))
        score = "" if label is None else f'<span class="count">{agreeing} of {k}</span>'
        rows.append(f'<div class="query">{"".join(tiles)}<div class="row">{"".join(others)}</div>{score}</div>')
    who, found = ("Test samples", f"the {k} training samples") if near.across_splits else ("Samples", f"the {k} others")
    intro = f"{who} (framed) and {found} nearest to them by cosine similarity, nearest first."
    if near.query_labels is not None:
        intro += " Dashed: another label; at the end, how many labels agree."
    return render_section("neighbours", "Nearest neighbors", f'<div style="{sheet.style}">{"".join(rows)}</div>', intro)


def _tile(cell: str, caption: str, agrees: bool = True) -> str:
    return f'<div class="tile{"" if agrees else " no"}">{cell}<span>{escape(caption)}</span></div>'


def _spectrum(content: ReportContent) -> str:
    if not content.spectra:
        return ""
    lines = []
    for i, (name, values) in enumerate(content.spectra.items()):
        y = np.asarray(torch.as_tensor(values).cpu(), dtype=float)
        # Values below the rounding of float32 features mean zero. Their size has no meaning.
        lines.append(ChartLine(name, np.arange(1, len(y) + 1), np.maximum(y, 1e-6), color=i))
    chart = draw_line_chart(lines, "singular values of the centerd features", 480, 260, log_y=True, x_title="direction")
    intro = "Singular values of the centerd features, divided by the largest. A sudden fall: the embedding uses few of its directions."
    names = draw_legend([line.name for line in lines], colors=[f"var(--c{line.color % 10})" for line in lines])
    return render_section("spectrum", "Spectrum", f'<figure class="single">{chart}{names}</figure>', intro)


def _again(content: ReportContent) -> str:
    parts = [f"<pre><code>{escape(content.command)}</code></pre>" if content.command else ""]
    if content.stored_config:
        rows = render_facts({name: f"<code>{escape(str(value))}</code>" for name, value in _flatten_config(content.stored_config)})
        parts.append(f"<details><summary>Configuration</summary>{rows}</details>")
    about = [f"{name} {version}" for name, version in content.versions.items()]
    if content.seconds is not None:
        about.insert(0, _duration(content.seconds))
    if about:
        parts.append(f'<p class="quiet">{escape(" · ".join(about))}</p>')
    body = "".join(parts)
    return render_section("again", "Run it again", body) if body else ""


def _flatten_config(stored_config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested settings to `outer.inner`, in order."""
    rows = []
    for name, value in stored_config.items():
        rows += _flatten_config(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return rows


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"

"""docs/claims.md and its figures: what papers claim, measured by benchmarks/claims."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

WIDTH, ROW, LEFT, RIGHT = 720, 30, 250, 70
STYLE = """<style>
.c { --paper: #ffffff; --ink: #222222; --quiet: #6b6b6b; --grid: #dddddd; --c0: #0066aa; --c1: #d04a00; }
@media (prefers-color-scheme: dark) {
.c { --paper: #14171a; --ink: #e8e8e8; --quiet: #a0a4a8; --grid: #34383c; --c0: #5bb8f5; --c1: #ff9350; } }
.c text { font: 13px system-ui, sans-serif; fill: var(--ink); } .c .quiet { fill: var(--quiet); font-size: 12px; }
.c .grid { stroke: var(--grid); } .c path { fill: none; stroke-width: 2; } .c .paper { fill: var(--paper); }
</style>"""
INTRODUCTION = (
    "What papers claim, in their words, and what small runs show. Not every claim holds at this size: the tables say so. Made by "
    "`docs/generate.py` from `benchmarks/results/claims/`; mean ± standard deviation over the seeds that are there."
)
COLUMNS = {"few_labels": "5 labels a class", "linear": "linear", "knn": "kNN"}
Rows = list[dict[str, Any]]


def claims_pages(root: Path, table: Callable[[list[str], list[list[str]]], str], digits: dict[str, Any] | None) -> dict[str, str]:
    """The page and its figures, by path."""
    parts = [
        "# Claims, measured",
        "",
        INTRODUCTION,
        "",
    ]
    pages: dict[str, str] = {}
    everything: Rows = [x | {"variant": r["recipe"]} for r in (digits or {"rows": []})["rows"] for x in r["results"] if not x["baseline"]]
    for path in sorted((root / "benchmarks" / "results" / "claims").glob("*.json")):
        found = json.loads(path.read_text())
        rows: Rows = found["rows"]
        everything += rows if found["common"]["data"] == "digits" else []
        figure = f"docs/claims/{path.stem}.svg"
        pages[figure] = lines(rows, found["axis"]) if found["axis"] else bars(rows)
        parts += [f"## {path.stem.replace('_', ' ').capitalize()}", "", found["claim"], "", f"![{path.stem}](claims/{path.stem}.svg)", ""]
        parts += [_table(rows, table), "", f"`python benchmarks/claims/{path.stem}.py`, on {found['common']['data']}", ""]
    everything = [r for r in everything if "alignment" in r]  # a method with one view has no pair to align
    if len(everything) > 2:
        pages["docs/claims/geometry.svg"] = plane(everything)
        parts += ["## Geometry", "", _agreement(everything), "", "![geometry](claims/geometry.svg)", ""]
    pages["docs/claims.md"] = "\n".join(parts).rstrip() + "\n"
    return pages


def _table(rows: Rows, table: Callable[[list[str], list[list[str]]], str]) -> str:
    names = list(dict.fromkeys(r["variant"] for r in rows))
    lines = [[name, *(_spread([100 * r[c] for r in rows if r["variant"] == name]) for c in COLUMNS)] for name in names]
    untrained = [r["untrained"] for r in rows if r["variant"] == names[0]]
    lines.append(["untrained encoder", *(_spread([100 * u[c] for u in untrained]) for c in COLUMNS)])
    return table(["variant", *COLUMNS.values()], lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def _agreement(rows: Rows) -> str:
    """How well geometry alone, without labels, orders the runs as a probe would."""
    both = [r["alignment"] + r["uniformity"] for r in rows]
    score = [r["few_labels"] for r in rows]
    order = lambda values: float(spearmanr(values, score)[0])  # type: ignore[arg-type]
    alone = [order([r[k] for r in rows]) for k in ("alignment", "uniformity")]
    return (
        f"Alignment and uniformity of {len(rows)} runs on digits against the accuracy of a probe on 5 labels a class: rank correlation "
        f"{order(both):.2f} with their sum, {alone[0]:.2f} with alignment and {alone[1]:.2f} with uniformity alone "
        "(lower is better for both, so that a useful measure has a negative one). Colour is accuracy."
    )


def bars(rows: Rows) -> str:
    """One bar a variant: accuracy from 5 labels a class, a whisker of one standard deviation."""
    names = list(dict.fromkeys(r["variant"] for r in rows))
    values = {n: [100 * r["few_labels"] for r in rows if r["variant"] == n] for n in names}
    low = math.floor(min(min(v) for v in values.values()) / 10) * 10
    to_x = lambda v: LEFT + (v - low) / (100 - low) * (WIDTH - LEFT - RIGHT)
    parts = [_axis(low, to_x, len(names) * ROW)]
    for i, (name, found) in enumerate(values.items()):
        y, mean = i * ROW + 6, statistics.mean(found)
        deviation = statistics.stdev(found) if len(found) > 1 else 0.0
        parts.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{to_x(mean) - LEFT:.1f}" height="{ROW - 12}" rx="2" fill="var(--c0)"/>')
        parts.append(f'<path stroke="var(--ink)" d="M{to_x(mean - deviation):.1f} {y + 9}H{to_x(mean + deviation):.1f}"/>')
        parts.append(f'<text class="quiet" x="{to_x(mean + deviation) + 6:.1f}" y="{y + 14}">{mean:.1f}</text>')
    return _svg(len(names) * ROW + 44, parts)


def _axis(low: float, to_x: Callable[[float], float], bottom: int) -> str:
    ticks = range(int(low), 101, 10)
    grid = "".join(f'<line class="grid" x1="{to_x(t):.1f}" x2="{to_x(t):.1f}" y1="0" y2="{bottom}"/>' for t in ticks)
    labels = "".join(f'<text class="quiet" x="{to_x(t):.1f}" y="{bottom + 18}" text-anchor="middle">{t}</text>' for t in ticks)
    return (
        f'{grid}{labels}<text class="quiet" x="{WIDTH - RIGHT}" y="{bottom + 38}" text-anchor="end">accuracy, 5 labels a class (%)</text>'
    )


def lines(rows: Rows, axis: str) -> str:
    """One curve a group over a numeric axis."""
    height, logarithmic = 300, "(log)" in axis
    place = (lambda v: math.log10(v)) if logarithmic else (lambda v: v)
    ats = sorted({r["at"] for r in rows})
    x0, x1 = place(ats[0]), place(ats[-1])
    low = math.floor(min(100 * r["few_labels"] for r in rows) / 10) * 10
    to_x = lambda v: 60 + (place(v) - x0) / (x1 - x0) * (WIDTH - 190)
    to_y = lambda v: 20 + (100 - v) / (100 - low) * (height - 70)
    grid = [f'<line class="grid" x1="60" x2="{WIDTH - 130}" y1="{to_y(t):.1f}" y2="{to_y(t):.1f}"/>' for t in range(int(low), 101, 10)]
    grid += [f'<text class="quiet" x="52" y="{to_y(t) + 4:.1f}" text-anchor="end">{t}</text>' for t in range(int(low), 101, 10)]
    grid += [f'<text class="quiet" x="{to_x(a):.1f}" y="{height - 28}" text-anchor="middle">{a:g}</text>' for a in ats]
    parts = [*grid, f'<text class="quiet" x="{(WIDTH - 70) / 2}" y="{height - 8}" text-anchor="middle">{axis}</text>']
    for i, group in enumerate(dict.fromkeys(r["group"] for r in rows)):
        mine = [(a, [100 * r["few_labels"] for r in rows if r["at"] == a and r["group"] == group]) for a in ats]
        means = [(a, statistics.mean(v)) for a, v in mine if v]
        path = "L".join(f"{to_x(a):.1f} {to_y(m):.1f}" for a, m in means)
        parts.append(f'<path stroke="var(--c{i})" d="M{path}"/>')
        parts += [f'<circle cx="{to_x(a):.1f}" cy="{to_y(y):.1f}" r="2.5" fill="var(--c{i})"/>' for a, v in mine for y in v]
        parts.append(f'<text x="{WIDTH - 120}" y="{to_y(means[-1][1]) + 4:.1f}">{group}</text>')
    return _svg(height, parts)


def plane(rows: Rows) -> str:
    """Runs in the plane of alignment and uniformity; the better the probe, the warmer."""
    height = 420
    x, y, score = ([r[k] for r in rows] for k in ("uniformity", "alignment", "few_labels"))
    to_x = lambda v: 70 + (v - min(x)) / (max(x) - min(x)) * (WIDTH - 110)
    to_y = lambda v: 20 + (max(y) - v) / (max(y) - min(y)) * (height - 80)
    warm = lambda s: f"hsl({220 - 190 * (s - min(score)) / (max(score) - min(score)):.0f} 70% 50%)"
    parts = [
        f'<circle cx="{to_x(r["uniformity"]):.1f}" cy="{to_y(r["alignment"]):.1f}" r="5" fill="{warm(r["few_labels"])}" fill-opacity="0.8">'
        f"<title>{r['variant']}: {100 * r['few_labels']:.1f} %</title></circle>"
        for r in rows
    ]
    parts.append(f'<text class="quiet" x="{WIDTH / 2}" y="{height - 10}" text-anchor="middle">uniformity (lower is better)</text>')
    parts.append(
        f'<text class="quiet" transform="translate(18 {height / 2}) rotate(-90)" text-anchor="middle">alignment (lower is better)</text>'
    )
    return _svg(height, parts)


def _svg(height: int, parts: list[str]) -> str:
    body = "".join(parts)
    paper = f'<rect class="paper" width="{WIDTH}" height="{height}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="c" viewBox="0 0 {WIDTH} {height}" role="img">{STYLE}{paper}{body}</svg>\n'

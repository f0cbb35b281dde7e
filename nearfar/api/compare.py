"""Several runs side by side: what they reached, with the spread over seeds, what they cost, and in what they differ.

Runs that differ only in the seed are one row. Numbers of other data or under another protocol are shown, and it is said that they
do not compare.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar import recipes
from nearfar.api.run_results import OneRun, read_run
from nearfar.core import UsageError
from nearfar.evaluate.result_table import GEOMETRY
from nearfar.train.user_recipes import Trusted

COSTS = {
    "seconds": "seconds", "samples": "samples seen", "rate": "samples/s", "parameters": "parameters",
    "encoder_parameters": "of the encoder",
}  # fmt: skip
"""What a run took. Seconds are those of the training loop, on whatever machine it was."""
COUNTED = {"questions", "passages", "triples", "short_classes"}
"""How many there are in a run's split, which its seed draws where data bring none. Sizes of data are compared by themselves."""
NOT_PROTOCOL = {"seed", "checkpoint", "notes", *COUNTED}
"""What the table's protocol says besides how it was measured."""


@dataclass(frozen=True)
class Row:
    """Runs that differ only in the seed, or one baseline over all runs."""

    name: str
    values: tuple[Mapping[str, Any], ...]
    runs: tuple[OneRun, ...] = ()

    def of(self, column: str) -> list[float]:
        return [v[column] for v in self.values if column in v]

    def cell(self, column: str) -> str:
        """Mean ± standard deviation over the runs (n - 1 in its denominator)."""
        values = self.of(column)
        if not values:
            return "–"
        accuracy = column not in GEOMETRY | COSTS
        scale = 100.0 if accuracy else 1.0
        mean, spread = scale * statistics.fmean(values), scale * statistics.stdev(values) if len(values) > 1 else 0.0
        if column in COSTS:
            return f"{mean:,.1f}" if column == "seconds" else f"{mean:,.0f}"
        places = 1 if accuracy else 2
        shown = f"{mean:.{places}f}" + (f" ± {spread:.{places}f}" if len(values) > 1 else "")
        return shown.replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """`floors` are baselines that were measured beside the runs; `differences` say why numbers do not compare, if they do not."""

    rows: list[Row]
    floors: list[Row]
    settings: dict[str, list[str]]
    """Settings in which rows differ, one value a row."""
    differences: list[str]
    notes: list[str]

    @property
    def columns(self) -> dict[str, str]:
        """Accuracies first, as each run's table has them."""
        every = {c: title for row in self.rows for run in row.runs for c, title in run.columns.items()}
        return {c: every[c] for c in sorted(every, key=lambda c: c in GEOMETRY)}

    @property
    def costs(self) -> dict[str, str]:
        return {c: title for c, title in COSTS.items() if any(row.of(c) for row in self.rows)}

    def to_json(self) -> str:
        rows = [
            {
                "name": row.name,
                "n": len(row.values),
                "seeds": [run.seed for run in row.runs],
                "runs": [str(run.path) for run in row.runs],
                **{c: _summary(row.of(c)) for c in self.columns | self.costs if row.of(c)},
            }
            for row in [*self.rows, *self.floors]
        ]
        protocol = next((run.stored.table.protocol for row in self.rows for run in row.runs if run.stored.table), {})
        found = {"comparable": not self.differences, "differences": self.differences, "notes": self.notes, "settings": self.settings}
        return json.dumps({**found, "protocol": {k: v for k, v in protocol.items() if k not in NOT_PROTOCOL}, "rows": rows}, indent=2)

    def render(self) -> str:
        """Tables as text: what was reached, what it cost, what differs."""
        every = [*self.rows, *self.floors]
        parts = [_text(["", "n", *self.columns.values()], [[r.name, str(len(r.values)), *map(r.cell, self.columns)] for r in every])]
        parts.append(_text(["cost", *self.costs.values()], [[row.name, *map(row.cell, self.costs)] for row in self.rows]))
        if self.settings:
            heads, values = ["what differs", *self.settings], zip(*self.settings.values(), strict=True)
            parts.append(_text(heads, [[row.name, *cells] for row, cells in zip(self.rows, values, strict=True)]))
        parts += ["\n".join(f"NOT COMPARABLE: {line}" for line in self.differences)] if self.differences else []
        parts += ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join(parts)


def compare_runs(
    paths: Sequence[str | os.PathLike],
    *,
    device: str = "auto",
    recipe: Trusted = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """What the runs' folders say; a run that was never evaluated is evaluated now, and its results are kept in its folder.

    `recipe`: the files, or the classes, of recipes that are not nearfar's own. Each is used for the runs that were trained with it.
    """
    if len({os.path.realpath(path) for path in paths}) < 2:
        raise UsageError("name at least two different runs to compare, as in `nearfar compare RUN RUN`")
    runs, repeated = _once_a_seed([read_run(path, device, recipe, progress) for path in paths])
    groups: dict[str, list[OneRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    settings = _differing([group[0].settings for group in groups.values()])
    rows = [
        Row(_name(i, list(groups.values()), settings), tuple(run.numbers for run in group), tuple(group))
        for i, group in enumerate(groups.values())
    ]
    shown = {name: [_value(v) for v in values] for name, values in settings.items()}
    return Comparison(_told_apart(rows), _floors(runs), shown, differences(runs), [*repeated, *_notes(runs, rows)])


def _once_a_seed(runs: Sequence[OneRun]) -> tuple[list[OneRun], list[str]]:
    """The first run of each settings and seed, and a note on the others: a repetition is no new sample."""
    found: dict[str, OneRun] = {}
    notes = []
    for run in runs:
        first = found.setdefault(json.dumps([run.settings, run.seed, run.config["data"]["fingerprint"]], sort_keys=True), run)
        if first is not run:
            notes.append(f"{run.path.name} repeats seed {run.seed} of {first.path.name} and is not counted.")
    return list(found.values()), notes


def differences(runs: Sequence[OneRun]) -> list[str]:
    """Why the runs' numbers cannot be set against each other; nothing where they can."""
    found = []
    by_data = _by(runs, lambda run: run.config["run"]["data"] or f"an array of {run.config['data']['train']:,} samples")
    if len(by_data) > 1:
        found.append(f"other data: {_listed(by_data)}")
    for name, same in by_data.items():
        sizes = _by(same, lambda run: f"{run.config['data']['train']:,} training and {run.config['data']['test']:,} test samples")
        if len(sizes) > 1:
            found.append(f"{name} changed between the runs: {_listed(sizes)}")
            continue
        for seed, alike in _by(same, lambda run: str(run.seed)).items():
            marks = _by(alike, lambda run: run.config["data"]["fingerprint"][:8])
            if len(marks) > 1:
                found.append(f"{name} changed between runs of seed {seed} (fingerprints): {_listed(marks)}")
    measured_runs = [run for run in runs if run.stored.table]
    keys = sorted({key for run in measured_runs if run.stored.table for key in run.stored.table.protocol} - NOT_PROTOCOL)
    for key in keys:
        values = _by(measured_runs, lambda run, key=key: str(run.stored.table.protocol.get(key, "not measured")))  # type: ignore[union-attr]
        if len(values) > 1:
            found.append(f"another protocol, {key}: {_listed(values)}")
    return found


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Settings in which rows differ; one that only some recipes have counts where two rows that have it differ."""
    found = {}
    for name in dict.fromkeys(name for row in settings for name in row):
        values = [row.get(name) for row in settings]
        own = {json.dumps(row[name]) for row in settings if name in row}
        if len(own) > 1:
            found[name] = values
    return found


def _name(row: int, groups: Sequence[Sequence[OneRun]], settings: Mapping[str, Sequence[Any]]) -> str:
    """The recipe, and what sets the row apart from others of the same recipe."""
    mine = groups[row][0].settings
    others = [i for i, group in enumerate(groups) if group[0].settings["recipe"] == mine["recipe"] and i != row]
    apart = [name for name, values in settings.items() if any(values[i] != values[row] for i in others)]
    recipe = Path(mine["recipe"]).name
    return " ".join([recipe, *(f"{name}={_value(mine.get(name))}" for name in apart)])


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    names = [row.name for row in rows]
    return [Row(f"{r.name} #{i + 1}" if names.count(r.name) > 1 else r.name, r.values, r.runs) for i, r in enumerate(rows)]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else Path(value).name if isinstance(value, str) and value.startswith("/") else str(value)


def _floors(runs: Sequence[OneRun]) -> list[Row]:
    """Every baseline over all runs, equal ones (of the same seed, and the same encoder) counted once; not where data differ."""
    if len({run.config["run"]["data"] for run in runs}) > 1:
        return []
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        for name, result in run.results.items():
            if result["baseline"]:
                found.setdefault(name, {})[json.dumps([run.seed, result])] = result
    return [Row(name, tuple(values.values())) for name, values in found.items()]


def _notes(runs: Sequence[OneRun], rows: Sequence[Row]) -> list[str]:
    notes = []
    fresh = [run.path.name for run in runs if run.fresh and run.stored.table]
    if fresh:
        notes.append(f"Evaluated now, results kept in results.json: {', '.join(fresh)}.")
    notes += [f"{run.path.name} has no numbers: {run.stored.problem}." for run in runs if run.stored.problem]
    early = [f"{run.path.name} (step {run.stored.step} of {run.config['run']['steps']})" for run in runs if _unfinished(run)]
    if early:
        notes.append(f"Not finished: {', '.join(early)}.")
    told = {bool(_uses_labels(run)) for run in runs}
    if len(told) > 1:
        notes.append(f"Labels were seen in training by: {', '.join(run.path.name for run in runs if _uses_labels(run))}.")
    seeds = {row.name: tuple(sorted(run.seed for run in row.runs)) for row in rows}
    if len(set(seeds.values())) > 1:
        of = "; ".join(f"{name}: {', '.join(map(str, s))}" for name, s in seeds.items())
        notes.append(f"Seeds differ between rows ({of}): a seed names the split too, where data bring none.")
    if any(len(row.runs) > 1 for row in rows):
        notes.append("± is the standard deviation over runs of other seeds (n - 1).")
    if any(len(row.runs) < 3 for row in rows):
        notes.append("Rows of fewer than 3 seeds: a difference may be chance.")
    return notes


def _unfinished(run: OneRun) -> bool:
    return run.stored.step < (run.config["run"]["steps"] or 0)


def _uses_labels(run: OneRun) -> bool:
    name = run.config["recipe"]
    return name in recipes.names() and recipes.method(name).recipe.uses_labels


def _by(runs: Sequence[OneRun], name: Callable[[OneRun], str]) -> dict[str, list[OneRun]]:
    found: dict[str, list[OneRun]] = {}
    for run in runs:
        found.setdefault(name(run), []).append(run)
    return found


def _listed(groups: Mapping[str, Sequence[OneRun]]) -> str:
    return "; ".join(f"{name} ({', '.join(run.path.name for run in group)})" for name, group in groups.items())


def _summary(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": spread, "values": list(values)}


def _text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))) for r in (heads, *rows)
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

"""Table of several runs, as text and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearfar.evaluate.result_table import GEOMETRY_COLUMNS
from nearfar.evaluate.run_results import RunResults

COST_COLUMNS = {
    "seconds": "seconds", "samples": "samples seen", "rate": "samples/s", "parameters": "parameters",
    "encoder_parameters": "of the encoder",
}  # fmt: skip
"""Cost of a run. Seconds are those of the training loop, on the machine of the run."""


SAMPLE_COUNT_FIELDS = {"questions", "passages", "triples", "short_classes"}
"""Sizes of a run's split. The seed draws the split if the data have none. Dataset sizes are compared
separately."""


NON_PROTOCOL_FIELDS = {"seed", "checkpoint", "notes", *SAMPLE_COUNT_FIELDS}
"""Fields of a table's protocol that do not describe the measurement."""


@dataclass(frozen=True)
class ComparisonRow:
    """Runs that differ only in the seed, or one baseline over all runs."""

    name: str
    values: tuple[Mapping[str, Any], ...]
    runs: tuple[RunResults, ...] = ()

    def get_values(self, column: str) -> list[float]:
        """Return the values of a column."""
        return [v[column] for v in self.values if column in v]

    def format_cell(self, column: str) -> str:
        """Return mean ± standard deviation over the runs (n - 1 in its denominator)."""
        values = self.get_values(column)
        if not values:
            return "–"
        accuracy = column not in GEOMETRY_COLUMNS | COST_COLUMNS
        scale = 100.0 if accuracy else 1.0
        mean, spread = scale * statistics.fmean(values), scale * statistics.stdev(values) if len(values) > 1 else 0.0
        if column in COST_COLUMNS:
            return f"{mean:,.1f}" if column == "seconds" else f"{mean:,.0f}"
        places = 1 if accuracy else 2
        shown = f"{mean:.{places}f}" + (f" ± {spread:.{places}f}" if len(values) > 1 else "")
        return shown.replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """Rows of runs and baselines, and the settings that differ.

    `incompatibilities` lists the reasons why the numbers are not comparable, if there are any.
    """

    rows: list[ComparisonRow]
    baselines: list[ComparisonRow]
    differing_settings: dict[str, list[str]]
    """Settings that differ between rows, one value per row."""
    incompatibilities: list[str]
    notes: list[str]

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns of the runs' tables with their titles, accuracies first."""
        every = {c: title for row in self.rows for run in row.runs for c, title in run.columns.items()}
        return {c: every[c] for c in sorted(every, key=lambda c: c in GEOMETRY_COLUMNS)}

    @property
    def costs(self) -> dict[str, str]:
        """Return the cost columns with values, with their titles."""
        return {c: title for c, title in COST_COLUMNS.items() if any(row.get_values(c) for row in self.rows)}

    def to_json(self) -> str:
        """Return the comparison as JSON."""
        rows = [
            {
                "name": row.name,
                "n": len(row.values),
                "seeds": [run.seed for run in row.runs],
                "runs": [str(run.path) for run in row.runs],
                **{c: _summary(row.get_values(c)) for c in self.columns | self.costs if row.get_values(c)},
            }
            for row in [*self.rows, *self.baselines]
        ]
        protocol = next((run.stored_results.table.protocol for row in self.rows for run in row.runs if run.stored_results.table), {})
        found = {
            "comparable": not self.incompatibilities,
            "differences": self.incompatibilities,
            "notes": self.notes,
            "settings": self.differing_settings,
        }
        return json.dumps(
            {**found, "protocol": {k: v for k, v in protocol.items() if k not in NON_PROTOCOL_FIELDS}, "rows": rows}, indent=2
        )

    def render(self) -> str:
        """Return the tables as text: results, cost and differing settings."""
        every = [*self.rows, *self.baselines]
        parts = [_text(["", "n", *self.columns.values()], [[r.name, str(len(r.values)), *map(r.format_cell, self.columns)] for r in every])]
        parts.append(_text(["cost", *self.costs.values()], [[row.name, *map(row.format_cell, self.costs)] for row in self.rows]))
        if self.differing_settings:
            heads, values = ["what differs", *self.differing_settings], zip(*self.differing_settings.values(), strict=True)
            parts.append(_text(heads, [[row.name, *cells] for row, cells in zip(self.rows, values, strict=True)]))
        parts += ["\n".join(f"NOT COMPARABLE: {line}" for line in self.incompatibilities)] if self.incompatibilities else []
        parts += ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join(parts)


def _summary(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": spread, "values": list(values)}


def _text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))) for r in (heads, *rows)
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

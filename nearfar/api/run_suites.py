"""Suites of `nearfar eval`: choose, run and render them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from nearfar.api.suite_subject import CONFIDENCE_Z, Subject, SuiteRow, wilson_interval
from nearfar.api.suites import list_suites, load_suite
from nearfar.core import UsageError
from nearfar.evaluate import ResultTable

SHARES = r"linear|knn|zero_shot|exact|top\d+|hits\d+"
"""Columns that are shares of test samples: their interval follows from the number of samples."""


@dataclass(frozen=True)
class SuiteReport:
    """Rows of all suites with their protocol."""

    protocol: dict[str, Any]
    rows: list[SuiteRow]
    table: ResultTable | None = None
    """Result table of the modality's own evaluation, if it was measured."""

    def to_json(self) -> str:
        """Return one JSON object: {protocol, rows}."""
        return json.dumps({"protocol": self.protocol, "rows": [asdict(row) for row in self.rows]}, indent=2)

    def render(self) -> str:
        """Return one text table for each suite."""
        suites = dict.fromkeys(row.suite for row in self.rows)
        return "\n\n".join(self._render_suite(suite) for suite in suites)

    def _render_suite(self, suite: str) -> str:
        rows = [row for row in self.rows if row.suite == suite]
        systems, metrics = (list(dict.fromkeys(values)) for values in ([r.system for r in rows], [r.metric for r in rows]))
        width = max(map(len, [*metrics, suite]))
        found = {(row.metric, row.system): row.value for row in rows}
        lines = [f"{suite:{width}}  " + "  ".join(f"{system:>{max(9, len(system))}}" for system in systems)]
        lines.append("-" * len(lines[0]))
        for metric in metrics:
            cells = [_format_value(found.get((metric, system))).rjust(max(9, len(system))) for system in systems]
            lines.append(f"{metric:{width}}  " + "  ".join(cells))
        note = self.protocol.get(suite)
        return "\n".join([*lines, *([f"{str(note)[0].upper()}{str(note)[1:]}."] if note else [])])


def _format_value(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def run_suites(subject: Subject, names: Sequence[str] = ()) -> SuiteReport:
    """Run suites on a model or an index.

    Args:
        subject: model or index.
        names: names of suites. Default: all suites that the modality's own evaluation answers; for an index
            all suites that apply.

    Raises:
        UsageError: if a named suite is unknown or does not apply.
    """
    rows: list[SuiteRow] = []
    for name in names or list_suites():
        suite = load_suite(name)
        if not names and subject.has_table and not hasattr(suite, "COLUMNS"):
            continue
        reason = explain_skipped_suite(suite, subject)
        if reason and names:
            raise UsageError(f"--suite {name} does not apply to {subject.title}: {reason}")
        if not reason:
            rows += measure_suite(name, suite, subject)
    if not rows:
        raise UsageError(f"no suite applies to {subject.title}")
    if names or not subject.has_table:
        return SuiteReport(subject.protocol, rows)
    protocol = {name: value for name, value in subject.table.protocol.items() if name != "accuracies"}
    return SuiteReport(subject.protocol | protocol, rows, subject.table)


def explain_skipped_suite(suite: ModuleType, subject: Subject) -> str:
    """Return the reason why a suite does not apply. Empty if it does."""
    if hasattr(suite, "explain_skip"):
        return suite.explain_skip(subject)
    if not subject.has_table:
        return "" if hasattr(suite, "measure") else "it measures models, not indexes"
    columns = _list_columns(subject.table)
    if any(re.fullmatch(suite.KEY, column) for column in columns):
        return ""
    return getattr(suite, "HINT", "") or f"the evaluation measures {', '.join(columns)}"


def measure_suite(name: str, suite: ModuleType, subject: Subject) -> list[SuiteRow]:
    """Return the rows of one suite that applies."""
    if not subject.has_table or not hasattr(suite, "COLUMNS"):
        return suite.measure(subject)
    columns = [column for column in _list_columns(subject.table) if re.fullmatch(suite.COLUMNS, column)]
    results = subject.table.results
    rows = [(column, row) for column in columns for row in results if column in row]
    count, draws = _count_tested(subject), subject.table.protocol.get("draws")
    return [SuiteRow(name, row["representation"], column, row[column], *_find_interval(column, row, count, draws)) for column, row in rows]


def _list_columns(table: ResultTable) -> list[str]:
    extra = ["mean_rank"] if any("mean_rank" in row for row in table.results) else []
    return [*table.columns, *extra]


def _count_tested(subject: Subject) -> int | None:
    protocol = subject.table.protocol
    asked = protocol.get("questions") or (2 * protocol["triples"] if "triples" in protocol else None)
    test = subject.splits.test
    return asked or (None if test is None else len(test))


def _find_interval(column: str, row: dict[str, Any], count: int | None, draws: int | None) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a number, as far as it is known.

    Shares of test samples have the interval of Wilson. Means over draws have that of their standard error.
    """
    if draws and f"{column}_std" in row:
        half = CONFIDENCE_Z * row[f"{column}_std"] / math.sqrt(draws)
        return row[column] - half, row[column] + half
    if count and re.fullmatch(SHARES, column):
        return wilson_interval(row[column], count)
    return None, None

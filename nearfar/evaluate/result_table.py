"""Results of a comparison with their protocol: as data, as JSON and as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nearfar.core import NearfarError

ACCURACY_COLUMNS = {
    "few_labels": "few labels", "linear": "all labels", "knn": "kNN",
    "mrr": "MRR", "hits1": "hits@1", "hits3": "hits@3", "hits10": "hits@10",
    "macro_f1": "macro-F1", "micro_f1": "micro-F1",
}  # fmt: skip
"""Columns that have a best value. Geometry has none: a collapsed encoder aligns perfectly."""
GEOMETRY_COLUMNS = {"alignment": "alignment", "uniformity": "uniformity", "effective_rank": "eff. rank", "spread": "spread"}


@dataclass(frozen=True)
class ResultTable:
    """Table of results and the protocol they were measured with.

    A protocol may add custom columns ("accuracies": title by key) and describe the measurement itself
    ("notes": lines).

    Attributes:
        results: One dict per representation.
        protocol: Values that all results share.
    """

    results: list[dict[str, Any]]
    protocol: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per representation with its results and the protocol."""
        return [result | self.protocol for result in self.results]

    def to_json(self) -> str:
        """Return protocol and results as JSON."""
        return json.dumps({"protocol": self.protocol, "results": self.results}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> ResultTable:
        """Read a table from JSON."""
        try:
            value = json.loads(text)
            return ResultTable(list(value["results"]), dict(value["protocol"]))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as e:
            raise NearfarError(f"not a table of results: {e}") from e

    @property
    def accuracy_columns(self) -> dict[str, str]:
        """Return the columns that have a best value, measured or not."""
        return ACCURACY_COLUMNS | self.protocol.get("accuracies", {})

    @property
    def columns(self) -> dict[str, str]:
        """Return the measured columns, by key and heading, in display order."""
        return {key: title for key, title in (self.accuracy_columns | GEOMETRY_COLUMNS).items() if any(key in r for r in self.results)}

    def find_best_rows(self, column: str) -> list[int]:
        """Return the rows with the best displayed value of an accuracy column.

        Several rows may tie. Geometry columns have no best row.
        """
        if column not in self.accuracy_columns:
            return []
        shown = [round(r[column], 4) if column in r else -1.0 for r in self.results]
        return [i for i, value in enumerate(shown) if value == max(shown)]

    def format_cell(self, row: int, column: str) -> str:
        """Format a value for display.

        Accuracies are percentages, with their standard deviation over draws where there were several.
        """
        result = self.results[row]
        if column not in result:
            return "–"
        if f"{column}_std" in result:
            return f"{100 * result[column]:.1f} ± {100 * result[f'{column}_std']:.1f}"
        return f"{100 * result[column] if column in self.accuracy_columns else result[column]:.2f}".replace("-", "−")

    @property
    def verdict(self) -> str:
        """Return one line that names the columns in which a baseline is best.

        The line is empty if no baseline is best in any column.
        """
        trained = [i for i, r in enumerate(self.results) if not r["baseline"]]
        lost = []
        for column in self.columns:
            winners = self.find_best_rows(column)
            if not trained or not winners or not all(self.results[i]["baseline"] for i in winners):
                continue
            ours = max(trained, key=lambda i: self.results[i].get(column, -1.0))
            winner, loser = self.results[winners[0]]["representation"], self.results[ours]["representation"]
            lost.append(
                f"{winner} beat {loser} on {self.accuracy_columns[column]} "
                f"({self.format_cell(winners[0], column)} vs {self.format_cell(ours, column)})"
            )
        return f"Some baselines score higher than training: {'; '.join(lost)}." if lost else ""

    @property
    def notes(self) -> list[str]:
        """Return the protocol as sentences."""
        p = self.protocol
        if "notes" in p:
            return list(p["notes"])
        lines = [p["remark"]] if "remark" in p else []
        if "k" in p:
            short = f"; {p['short_classes']} classes have fewer and give all they have" if p["short_classes"] else ""
            converged = all(r.get("linear_converged", True) for r in self.results)
            clipped = f" (clipped from {p['k_asked']})" if p["k"] != p["k_asked"] else ""
            lines += [
                "Accuracies in per cent.",
                f"Few labels: linear probe on {p['per_class']} labeled samples a class{short}; "
                f"mean ± standard deviation over {p['draws']} draws, the same for every row.",
                f"All labels: linear probe on the training split. Probes: offline logistic regression, C = {p['C']:g}, "
                f"{'' if converged else 'NOT all '}to convergence; {self._describe_features()}.",
                f"kNN: cosine, k = {p['k']}{clipped}, weights exp(s / {p['temperature']:g}).",
            ]
        lines.append(
            f"Features: {p['checkpoint']}, {p['split']} split; nothing was chosen by these numbers. "
            f"Geometry: at most {p['geometry_samples']:,} {p['split']} samples; spread: 0 under collapse, about 1 on an even sphere."
        )
        return lines

    def _describe_features(self) -> str:
        if "penalty" in self.protocol:
            return f"features as they are; C of all labels {self.protocol['penalty']}, for each row"
        return "features standardized over the training split, baselines as named"

    def render(self) -> str:
        """Format the table as text.

        An asterisk marks the best value of a column. Verdict and protocol follow the table.
        """
        rows = [["representation", *(f"{title} " for title in self.columns.values()), ""]]
        for i, result in enumerate(self.results):
            rows.append(
                [
                    result["representation"],
                    *(f"{self.format_cell(i, c)}{'*' if i in self.find_best_rows(c) else ' '}" for c in self.columns),
                    "",
                ]
            )
        widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
        lines = [
            "  ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join([*lines, *([self.verdict] if self.verdict else []), *self.notes])

"""A comparison's numbers with the protocol they were measured under: as data, as JSON, as text."""

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
    """`results`: one dict a representation; `protocol`: what all of them share. `rows` joins both: each row stands alone.

    A protocol may bring columns of its own ("accuracies": title by key) and say itself what was measured ("notes": lines).
    """

    results: list[dict[str, Any]]
    protocol: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [result | self.protocol for result in self.results]

    def to_json(self) -> str:
        return json.dumps({"protocol": self.protocol, "results": self.results}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> ResultTable:
        try:
            value = json.loads(text)
            return ResultTable(list(value["results"]), dict(value["protocol"]))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as e:
            raise NearfarError(f"not a table of results: {e}") from e

    @property
    def accuracy_columns(self) -> dict[str, str]:
        """Columns that have a best value, measured or not."""
        return ACCURACY_COLUMNS | self.protocol.get("accuracies", {})

    @property
    def columns(self) -> dict[str, str]:
        """Measured columns, by key and heading, in the order they are shown."""
        return {key: title for key, title in (self.accuracy_columns | GEOMETRY_COLUMNS).items() if any(key in r for r in self.results)}

    def find_best_rows(self, column: str) -> list[int]:
        """Rows that show the best value of an accuracy column (several on a tie); none for geometry."""
        if column not in self.accuracy_columns:
            return []
        shown = [round(r[column], 4) if column in r else -1.0 for r in self.results]
        return [i for i, value in enumerate(shown) if value == max(shown)]

    def format_cell(self, row: int, column: str) -> str:
        """A value as it is shown: accuracies in per cent, with their deviation over draws where there were several."""
        result = self.results[row]
        if column not in result:
            return "–"
        if f"{column}_std" in result:
            return f"{100 * result[column]:.1f} ± {100 * result[f'{column}_std']:.1f}"
        return f"{100 * result[column] if column in self.accuracy_columns else result[column]:.2f}".replace("-", "−")

    @property
    def verdict(self) -> str:
        """One line where training did not pay: a baseline is best in some column. Empty if it is in none."""
        trained = [i for i, r in enumerate(self.results) if not r["baseline"]]
        lost = []
        for column in self.columns:
            winners = self.find_best_rows(column)
            if not trained or not winners or not all(self.results[i]["baseline"] for i in winners):
                continue
            ours = max(trained, key=lambda i: self.results[i].get(column, -1.0))
            winner, loser = self.results[winners[0]]["representation"], self.results[ours]["representation"]
            lost.append(
                f"{winner} beat {loser} on {self.accuracy_columns[column]} ({self.format_cell(winners[0], column)} against {self.format_cell(ours, column)})"
            )
        return f"Training did not pay everywhere: {'; '.join(lost)}." if lost else ""

    @property
    def notes(self) -> list[str]:
        """The protocol in words."""
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
                f"Few labels: linear probe on {p['per_class']} labelled samples a class{short}; "
                f"mean ± standard deviation over {p['draws']} draws, the same for every row.",
                f"All labels: linear probe on the training split. Probes: offline logistic regression, C = {p['C']:g}, "
                f"{'' if converged else 'NOT all '}to convergence; features standardised over the training split, baselines as named.",
                f"kNN: cosine, k = {p['k']}{clipped}, weights exp(s / {p['temperature']:g}).",
            ]
        lines.append(
            f"Features: {p['checkpoint']}, {p['split']} split; nothing was chosen by these numbers. "
            f"Geometry: at most {p['geometry_samples']:,} {p['split']} samples; spread: 0 under collapse, about 1 on an even sphere."
        )
        return lines

    def render(self) -> str:
        """The table as text; an asterisk marks the best of a column, the verdict and the protocol follow."""
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

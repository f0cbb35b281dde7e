"""Data of one run in a comparison: its folder, its results and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.evaluate.stored_results import StoredResults


@dataclass(frozen=True)
class RunResults:
    """Configuration, results and cost of one run."""

    path: Path
    stored_config: Mapping[str, Any]
    stored_results: StoredResults
    seconds: float | None
    newly_measured: bool = False
    """True if the results were not stored and had to be measured."""

    @property
    def seed(self) -> int:
        """Return the random seed."""
        return self.stored_config["train_config"]["seed"]

    @property
    def settings(self) -> dict[str, Any]:
        """Return all settings that the result depends on, except the random seed.

        The hyperparameters of the recipe keep their plain names.
        """
        run = {name: value for name, value in self.stored_config["train_config"].items() if name != "seed"}
        content = {"recipe file": self.stored_config["source"]["sha256"][:8]} if self.stored_config.get("source", {}).get("sha256") else {}
        return {"recipe": self.stored_config["recipe"], **content, **run, **self.stored_config["hyperparameters"]}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Return the results by representation."""
        return {r["representation"]: r for r in self.stored_results.table.results} if self.stored_results.table else {}

    @property
    def columns(self) -> dict[str, str]:
        """Return the measured columns, by key and heading."""
        return self.stored_results.table.columns if self.stored_results.table else {}

    @property
    def measured_values(self) -> dict[str, Any]:
        """Return all measurements of the trained encoder, and the cost."""
        trained = next((r for r in self.results.values() if not r["baseline"]), {})
        samples = self.stored_results.step * (self.stored_config["train_config"]["batch_size"] or 0)
        cost: dict[str, Any] = {"samples": samples, "parameters": self.stored_results.parameters}
        cost["encoder_parameters"] = self.stored_results.encoder_parameters
        if self.seconds:
            cost |= {"seconds": self.seconds, "rate": samples / self.seconds}
        return {name: trained[name] for name in self.columns if name in trained} | cost

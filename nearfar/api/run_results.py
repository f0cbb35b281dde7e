"""One of the runs that are compared: its folder as data, its results, and what it cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.api.stored_results import Stored, measured
from nearfar.train.run_folder import RunFolder, training_seconds
from nearfar.train.user_recipes import Trusted, warn_if_file_changed


@dataclass(frozen=True)
class OneRun:
    """A run's folder as data."""

    path: Path
    config: Mapping[str, Any]
    stored: Stored
    seconds: float | None
    fresh: bool = False
    """Its results were not there and had to be measured."""

    @property
    def seed(self) -> int:
        return self.config["run"]["seed"]

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on but the seed; the recipe's own settings under their plain names."""
        run = {name: value for name, value in self.config["run"].items() if name != "seed"}
        content = {"recipe file": self.config["source"]["sha256"][:8]} if self.config.get("source", {}).get("sha256") else {}
        return {"recipe": self.config["recipe"], **content, **run, **self.config["hyper"]}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """By representation."""
        return {r["representation"]: r for r in self.stored.table.results} if self.stored.table else {}

    @property
    def columns(self) -> dict[str, str]:
        """What was measured, by key and heading."""
        return self.stored.table.columns if self.stored.table else {}

    @property
    def numbers(self) -> dict[str, Any]:
        """Everything measured of the trained encoder, and what it cost."""
        trained = next((r for r in self.results.values() if not r["baseline"]), {})
        samples = self.stored.step * (self.config["run"]["batch"] or 0)
        cost: dict[str, Any] = {"samples": samples, "parameters": self.stored.parameters}
        cost["encoder_parameters"] = self.stored.encoder_parameters
        if self.seconds:
            cost |= {"seconds": self.seconds, "rate": samples / self.seconds}
        return {name: trained[name] for name in self.columns if name in trained} | cost


def read_run(path: str | os.PathLike, device: str, recipe: Trusted, progress: Callable[[int, int], None] | None) -> OneRun:
    folder = RunFolder.open(path)
    config = folder.config()
    found, fresh = measured(path, device, recipe, progress)
    if not fresh:  # loading it would have said so
        warn_if_file_changed(config, folder.path)
    return OneRun(folder.path, config, found, training_seconds(folder.metrics()), fresh)

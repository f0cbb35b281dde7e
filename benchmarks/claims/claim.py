"""Claims of the literature as benchmarks: variants of a method, trained and measured alike over seeds.

Each script holds one claim. Rows accumulate in benchmarks/results/claims/NAME.json: variants and seeds that are there with today's
settings are not run again. docs/generate.py draws the figure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import check_row, is_measured, known, taking_turns, write
from provenance import Training, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import Recipe

DIGITS: dict[str, Any] = {"data": "digits", "steps": 300, "batch_size": 256, "lr": 2e-3}
"""The training of most claims: handwritten digits, the small ConvNet, AdamW. Half a minute a run on one core."""
KEPT = ("few_labels", "linear", "knn", "alignment", "uniformity", "effective_rank", "spread")


@dataclass(frozen=True)
class Variant:
    """One bar or one point of the figure.

    `at` is its place on a numeric axis, `group` the curve that it belongs to.
    """

    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None
    group: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim and the variants that test it.

    `common` are the settings of all variants, `axis` the title of a numeric axis, and `source` opens data other than those that a name
    in `common` tells.
    """

    name: str
    text: str
    variants: Mapping[str, Variant]
    common: Mapping[str, Any] = field(default_factory=lambda: DIGITS)
    axis: str = ""
    source: Callable[[], str] | None = None

    def parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self.text)
        parser.add_argument("--seeds", default="0,1,2")
        parser.add_argument("--threads", type=int, default=torch.get_num_threads())
        parser.add_argument("--part", default="0/1", help="I/N: every N-th variant from the I-th on, so that N processes share the work")
        parser.add_argument("--data", help="other data than the claim's own: the result is only printed")
        return parser

    def run(self) -> None:
        """Train and measure what is missing."""
        args = self.parser().parse_args()
        torch.set_num_threads(args.threads)
        first, step = map(int, args.part.split("/"))
        for seed in map(int, args.seeds.split(",")):
            for label in list(self.variants)[first::step]:
                if args.data:
                    self.row(label, seed, args.data)
                elif not is_measured(f"claims/{self.name}", self.is_current, variant=label, seed=seed):
                    self.keep(self.row(label, seed, self.source() if self.source else self.common["data"]))

    def settings(self, label: str) -> dict[str, Any]:
        """Return what one variant is trained with."""
        return {**self.common, **self.variants[label].settings}

    def training(self, label: str) -> Training:
        """Return all settings of one variant."""
        return training_of(self.variants[label].recipe, self.settings(label))

    def is_current(self, row: dict[str, Any]) -> bool:
        """Return True if a row has today's settings of its variant."""
        label = row["variant"]
        return label in self.variants and agrees(row, self.settings(label), self.training(label))

    def keep(self, row: dict[str, Any]) -> None:
        """Store a row. Rows are ordered by seed and variant; those of variants that no longer exist are dropped."""
        order, name = list(self.variants), f"claims/{self.name}"
        check_row(name, row)
        with taking_turns():
            rows = [r for r in known(name) if r["variant"] in order and (r["variant"], r["seed"]) != (row["variant"], row["seed"])]
            rows = sorted([*rows, row], key=lambda r: (r["seed"], order.index(r["variant"])))
            write(name, {"claim": self.text, "axis": self.axis, "common": dict(self.common), "rows": rows})

    def row(self, label: str, seed: int, data: str) -> dict[str, Any]:
        """Train one variant with one seed, measure it and return its row."""
        variant, began = self.variants[label], time.perf_counter()
        model = fit(variant.recipe, seed=seed, **(self.settings(label) | {"data": data}))
        table = measure_model(model).table
        ours = next(r for r in table.results if not r["baseline"])
        untrained = next(r for r in table.results if r["representation"] == "untrained encoder")
        row = {"variant": label, "group": variant.group, "at": variant.at, "seed": seed, "seconds": round(time.perf_counter() - began, 1)}
        row |= {k: ours[k] for k in KEPT if k in ours}
        row["untrained"] = {k: untrained[k] for k in KEPT if k in ours}
        shown = (f"{title} {100 * row[k]:.1f}" for title, k in (("5 labels", "few_labels"), ("linear", "linear"), ("kNN", "knn")))
        print(f"{label:40} seed {seed}: {', '.join(shown)}", flush=True)
        return row | provenance(self.settings(label), model.data_fingerprint, self.training(label))

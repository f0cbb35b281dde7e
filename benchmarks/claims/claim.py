"""What the claims' scripts share: variants of a method trained alike and measured alike, over seeds.

Each script is one claim of the literature made testable. Rows accumulate in benchmarks/results/claims/NAME.json: variants and seeds that
are there are not run again. docs/generate.py draws the figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import RESULTS, known, machine, taking_turns

from nearfar.app.api import fit
from nearfar.app.results import measure
from nearfar.core import Recipe

DIGITS: dict[str, Any] = {"data": "digits", "steps": 300, "batch": 256, "lr": 2e-3}
"""The training of most claims: handwritten digits, the small ConvNet, AdamW. Half a minute a run on one core."""


@dataclass(frozen=True)
class Variant:
    """One bar or one point of the figure. `at`: where it stands on a numeric axis; `group`: the curve it belongs to."""

    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None
    group: str = ""


def claim(name: str, text: str, variants: Mapping[str, Variant], common: Mapping[str, Any] = DIGITS, axis: str = "") -> None:
    """Train and measure what is missing, and print what is known."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", default="0/1", help="I/N: every N-th variant from the I-th on, so that N processes share the work")
    parser.add_argument("--data", help="other data than the claim's own: the result is only printed")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    about = {"claim": text, "axis": axis, "common": {**common, "data": Path(common["data"]).name}}
    first, step = map(int, args.part.split("/"))
    for seed in map(int, args.seeds.split(",")):
        for label, variant in list(variants.items())[first::step]:
            settings = {**common, **variant.settings, **({"data": args.data} if args.data else {})}
            if args.data:
                _row(label, variant, seed, settings)
            elif not any((r["variant"], r["seed"]) == (label, seed) for r in known(f"claims/{name}")):
                _keep(name, _row(label, variant, seed, settings), about, list(variants))


def _keep(name: str, row: dict[str, Any], about: dict[str, Any], order: list[str]) -> None:
    """Rows in the order of seeds and variants; those of variants that are no more are dropped."""
    with taking_turns():
        rows = [r for r in known(f"claims/{name}") if r["variant"] in order and (r["variant"], r["seed"]) != (row["variant"], row["seed"])]
        rows = sorted([*rows, row], key=lambda r: (r["seed"], order.index(r["variant"])))
        path = RESULTS / "claims" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def _row(label: str, variant: Variant, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    trained = fit(variant.recipe, seed=seed, **settings)
    table = measure(trained).table
    ours = next(r for r in table.results if not r["baseline"])
    kept = ("few_labels", "linear", "knn", "alignment", "uniformity", "effective_rank", "spread")
    row = {"variant": label, "group": variant.group, "at": variant.at, "seed": seed, "seconds": round(time.perf_counter() - began, 1)}
    row["machine"] = machine()
    row |= {k: ours[k] for k in kept if k in ours}
    row["untrained"] = {k: next(r[k] for r in table.results if r["representation"] == "untrained encoder") for k in kept if k in ours}
    print(
        f"{label:40} seed {seed}: 5 labels {100 * row['few_labels']:.1f}, linear {100 * row['linear']:.1f}, kNN {100 * row['knn']:.1f}",
        flush=True,
    )
    return row

"""How well the label-free ranking of `nearfar choose` agrees with labels, over recipes, settings and seeds.

    python benchmarks/choose.py --stored                        from the results of digits.py and of claims/: nothing is trained
    python benchmarks/choose.py [--seeds 20,21,22]              fresh runs on digits
    python benchmarks/choose.py --data CIFAR10 --device cuda    the same on CIFAR-10: its folder, or what --pack FILE.npz made of it

Each variant is measured twice: without labels, as `nearfar choose` does, and with 5 labels a class and kNN. Spearman's and Kendall's
correlation of the two orders are taken within a seed: over all variants, over the usable ones (those that beat the untrained encoder with
5 labels a class), and over recipes at their usual settings, which is what `nearfar choose` tries. The score was settled among nine on
the stored results, which therefore favour it; fresh runs do not. CIFAR-10: the first 10,000 training and 2,000 test images. Rows
accumulate in benchmarks/results/choose.json: those that are there with today's settings are not run again, and several processes may
run at the same time.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from broken import StrongSimCLR, WeakSimCLR
from common import add, is_measured, known, write
from provenance import UNKNOWN, Training, agrees, provenance, training_of
from scipy.stats import kendalltau, spearmanr
from smallcifar import pack

from nearfar.api.choose import measure_without_labels, score_without_labels
from nearfar.api.fit import fit
from nearfar.core import RandomKey, Recipe
from nearfar.evaluate import few_label_probe, knn
from nearfar.recipes import list_methods
from nearfar.recipes.vision.barlow_twins import BarlowTwins
from nearfar.recipes.vision.byol import BYOL
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.recipes.vision.swav import SwAV
from nearfar.recipes.vision.w_mse import WMSE
from nearfar.train.model_data import load_model_splits

VARIANTS: dict[str, tuple[Recipe, dict[str, Any]]] = {
    "simclr": (SimCLR(), {}),
    "simclr tau 0.1": (SimCLR(temperature=0.1), {}),
    "simclr tau 2": (SimCLR(temperature=2.0), {}),
    "simclr lr 0.0001": (SimCLR(), {"lr": 1e-4}),
    "simclr weak views": (WeakSimCLR(), {}),
    "simclr strong views": (StrongSimCLR(), {}),
    "moco-v2": (MoCoV2(queue_size=512), {}),
    "byol": (BYOL(dim=128, hidden_dim=256), {}),
    "byol lr 0.02": (BYOL(dim=128, hidden_dim=256), {"lr": 2e-2}),
    "barlow-twins": (BarlowTwins(dim=256, redundancy_weight=2e-2), {}),
    "barlow-twins lam 0.0001": (BarlowTwins(dim=256, redundancy_weight=1e-4), {}),
    "w-mse": (WMSE(dim=16, hidden_dim=256, sub_batch_size=64), {}),
    "swav": (SwAV(hidden_dim=128, prototypes=64, queue_size=256, prototype_freeze_ratio=0.0), {}),
}
SETTINGS = {"digits": {"steps": 60, "batch_size": 64, "lr": 2e-3}, "CIFAR-10": {"steps": 800, "batch_size": 256, "lr": 2e-3}}

PARTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all variants": lambda r: True,
    "usable variants": lambda r: r["few_labels"] > r["untrained_few_labels"],
    "recipes at their usual settings": lambda r: r["variant"] in list_methods(),
}
STORED = "digits, stored"
KEPT = ("few_labels", "knn", "alignment", "uniformity", "effective_rank", "spread")
COMPARED = ("variant", "seed", *KEPT)
NOT_ALIKE = ("pirl", "supcon", "simclr-v2-finetune", "simclr-v2-distil")
"""Recipes that saw labels, and PIRL, whose alignment is that of an image and its jigsaw."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seeds", default="20,21,22")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--stored", action="store_true")
    parser.add_argument("--pack", metavar="FILE.npz", help="write the images of CIFAR-10 that are used into one file, and nothing else")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    if args.pack:
        return print(pack(args.data, Path(args.pack)))
    if args.stored:
        rows = [r for r in known("choose") if r["data"] != STORED] + stored_rows()
        write("choose", {**about(rows), "rows": rows})
    else:
        with tempfile.TemporaryDirectory() as folder:
            fresh_rows(args, Path(folder))
    print(json.dumps(summary(known("choose")), indent=1))


def fresh_rows(args: argparse.Namespace, folder: Path) -> None:
    name, data = "digits" if args.data == "digits" else "CIFAR-10", args.data
    if Path(data).is_dir():
        data = str(pack(args.data, folder / "cifar.npz"))
    for seed in map(int, args.seeds.split(",")):
        for variant in VARIANTS:
            if not is_measured("choose", is_current, data=name, variant=variant, seed=seed):
                add("choose", row(name, variant, seed, data, args.device), ("data", "variant", "seed"), about)


def about(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"settings": SETTINGS, "summary": summary(rows)}


def stored_rows() -> list[dict[str, Any]]:
    """Return what other benchmarks measured on digits. Methods with one view have no alignment and are left out."""
    found = []
    for r in known("digits"):
        by = {x["representation"]: x for x in r["results"]}
        if r["recipe"] not in NOT_ALIKE and "alignment" in by["trained encoder"]:
            found.append(stored_row(r, r["recipe"], by["trained encoder"], by["untrained encoder"]))
    for claim in ("byol", "head", "necessary"):
        found += [stored_row(r, f"{claim}: {r['variant']}", r, r["untrained"]) for r in known(f"claims/{claim}")]
    return found


def stored_row(source: dict[str, Any], variant: str, trained: dict[str, Any], untrained: dict[str, Any]) -> dict[str, Any]:
    """Return a row of this benchmark with the numbers of another one's row."""
    before = {f"untrained_{name}": untrained[name] for name in ("few_labels", "knn")}
    found = {"data": STORED, "variant": variant, "seed": source["seed"], **{name: trained[name] for name in KEPT}, **before}
    return found | provenance({"commit of the source": source["commit"]}, source.get("data_fingerprint", UNKNOWN))


def settings(data: str, variant: str) -> dict[str, Any]:
    """Return what a fresh run is trained with."""
    return SETTINGS[data] | VARIANTS[variant][1]


def training(data: str, variant: str) -> Training:
    """Return all settings of a fresh run."""
    return training_of(VARIANTS[variant][0], settings(data, variant))


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a fresh row has today's settings, or a stored row the numbers that its source has today."""
    if row["data"] != STORED:
        return agrees(row, settings(row["data"], row["variant"]), training(row["data"], row["variant"]))
    return tuple(row[name] for name in COMPARED) in numbers_of_sources()


@functools.cache
def numbers_of_sources() -> set[tuple[Any, ...]]:
    """Return what identifies a stored row, for each one that its source has today."""
    return {tuple(row[name] for name in COMPARED) for row in stored_rows()}


def row(name: str, variant: str, seed: int, data: str, device: str) -> dict[str, Any]:
    began = time.perf_counter()
    model = fit(VARIANTS[variant][0], data, seed=seed, device=device, **settings(name, variant))
    seconds, splits = time.perf_counter() - began, load_model_splits(model, data)
    found = {"data": name, "variant": variant, "seed": seed, "seconds": round(seconds, 1), **measure_without_labels(model, splits)}
    labels = [torch.as_tensor(part.labels) for part in (splits.train, splits.test)]
    for who, net in (("", model), ("untrained_", model.build_untrained())):
        train, test = (net.encode(part) for part in (splits.train, splits.test))
        found[f"{who}few_labels"] = few_label_probe(train, labels[0], test, labels[1], rng_key=RandomKey(seed)).mean
        found[f"{who}knn"] = knn(train, labels[0], test, labels[1]).accuracy
    print(
        f"{name} {variant:26} seed {seed}: {seconds:.0f} s, 5 labels {100 * found['few_labels']:.1f}, kNN {100 * found['knn']:.1f}",
        flush=True,
    )
    return found | provenance(settings(name, variant), model.data_fingerprint, training(name, variant))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Correlations by data, mean over the seeds that are complete, and the values of each."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(r["data"] for r in rows):
        for kind, keep in PARTS.items():
            seeds = [
                agreement([r for r in part if keep(r)])
                for seed in dict.fromkeys(r["seed"] for r in rows)
                if len(part := [r for r in rows if (r["data"], r["seed"]) == (name, seed)]) >= len(VARIANTS)
            ]
            if seeds:
                found[f"{name}, {kind}"] = {
                    k: {"mean": round(statistics.fmean(s[k] for s in seeds), 3), "seeds": [s[k] for s in seeds]} for k in seeds[0]
                }
    return found


def agreement(rows: list[dict[str, Any]]) -> dict[str, float]:
    score = score_without_labels(rows)
    found: dict[str, float] = {"variants": len(rows)}
    for truth in ("few_labels", "knn"):
        values = [r[truth] for r in rows]
        found[f"spearman {truth}"] = round(float(spearmanr(score, values).statistic), 3)
        found[f"kendall {truth}"] = round(float(kendalltau(score, values).statistic), 3)
    best = max(range(len(rows)), key=lambda i: score[i])
    found["accuracy lost by the recommendation"] = round(max(r["few_labels"] for r in rows) - rows[best]["few_labels"], 4)
    for part, sign in (("alignment", -1), ("uniformity", -1), ("effective_rank", 1)):
        found[f"spearman few_labels, {part} alone"] = round(
            float(spearmanr([sign * r[part] for r in rows], [r["few_labels"] for r in rows]).statistic), 3
        )
    return found


if __name__ == "__main__":
    main()

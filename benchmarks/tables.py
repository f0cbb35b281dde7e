"""SCARF on tables of numbers, next to raw features, their principal components and the untrained encoder.

    python benchmarks/tables.py [--tables iris,wine] [--settings default,paper] [--seeds 0,1,2]

Rows accumulate in benchmarks/results/tables.json: those that are there with today's settings are not measured again unless --again is
given.
Data: scikit-learn's iris, wine, breast-cancer and digits; and a large table made of CIFAR-10's pixels, averaged to 8 x 8 x 3 = 192
columns: 20,000 of the training images, drawn by the seed, and all test images ($NEARFAR_DATA/cifar10 or ~/.cache/nearfar/cifar10).
Protocol: the encoder is trained on the training split without labels (bundled tables: keyed, stratified 80/20; CIFAR-10: its own
split), last step; linear probe on 5 labels a class (10 draws) and on all labels, kNN (k = 20, tau = 0.07). Raw features are
standardized over the training split; the principal components are whitened. The settings `default` are the recipe's defaults, `paper`
its published corruption and temperature, both for the same number of steps. Nothing is tuned on test rows. The defaults were chosen on
training rows of the digits, seed 0.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from common import add, is_measured
from provenance import DATA, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import RandomKey
from nearfar.data import load_images

SMALL: dict[str, Any] = {"encoder": "mlp", "steps": 1000, "batch_size": 64, "lr": 1e-3}
TABLES: dict[str, dict[str, Any]] = {
    "iris": SMALL,
    "wine": SMALL,
    "breast-cancer": SMALL,
    "digits-table": SMALL,
    "cifar10-8x8": {"encoder": "mlp", "steps": 2000, "batch_size": 256, "lr": 1e-3},
}
"""Settings of the run by table."""
VARIANTS: dict[str, dict[str, Any]] = {"default": {}, "paper": {"corruption": 0.6, "temperature": 1.0}}
"""Settings of the recipe."""
CIFAR_ROWS, CIFAR_SIDE = 20_000, 8
METRICS = ("few_labels", "linear", "knn")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--settings", default=",".join(VARIANTS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    for table in args.tables.split(","):
        for variant in args.settings.split(","):
            for seed in map(int, args.seeds.split(",")):
                if args.again or not is_measured("tables", is_current, table=table, variant=variant, seed=seed):
                    add("tables", row(table, variant, seed), ("table", "variant", "seed"), lambda rows: {"summary": summary(rows)})


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings of its table."""
    settings = settings_of(row["table"], row["variant"])
    return agrees(row, settings, training_of("scarf", settings))


def settings_of(table: str, variant: str) -> dict[str, Any]:
    """Return all settings of a run."""
    return TABLES[table] | VARIANTS[variant]


def row(table: str, variant: str, seed: int) -> dict[str, Any]:
    """Train on one table with one seed, measure the encoder and return its row."""
    settings = settings_of(table, variant)
    with tempfile.TemporaryDirectory() as folder:
        source = write_cifar_table(Path(folder), seed) if table.startswith("cifar10") else table
        began = time.perf_counter()
        model = fit("scarf", data=source, seed=seed, **settings)
        seconds = time.perf_counter() - began
        found = measure_model(model, source)
    show(table, variant, seed, seconds, found.table.results)
    train, test = found.splits.train, found.splits.test
    return {
        "table": table, "variant": variant, "seed": seed, "seconds": round(seconds, 1), "features": train.num_features, "train": len(train),
        "test": len(test), "classes": len(train.classes),
        "protocol": found.table.protocol, "results": found.table.results,
        **provenance(settings, model.data_fingerprint, training_of("scarf", settings)),
    }  # fmt: skip


def write_cifar_table(folder: Path, seed: int) -> str:
    """Write small copies of CIFAR-10's images as rows with their own test split, and return the path."""
    splits = load_images(str(DATA / "cifar10"), image_size=CIFAR_SIDE)
    chosen = np.sort(RandomKey(seed)("rows").permutation(len(splits.train))[:CIFAR_ROWS])
    parts = {"": splits.train.subset(chosen), "_test": splits.test}
    arrays = {f"x{name}": part.read(np.arange(len(part))).flatten(1).numpy() for name, part in parts.items()}
    path = folder / "cifar10.npz"
    np.savez(path, **arrays, **{f"y{name}": part.labels for name, part in parts.items()})
    return str(path)


def show(table: str, variant: str, seed: int, seconds: float, results: list[dict[str, Any]]) -> None:
    """Print the accuracies of one run."""
    lines = [f"{table}, {variant}, seed {seed}: {seconds:.0f} s"]
    lines += [f"  {r['representation']:22}" + "".join(f"  {m} {100 * r[m]:5.1f}" for m in METRICS) for r in results]
    print("\n".join(lines), flush=True)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the seeds, for each table, setting, representation and metric."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for r in rows:
        for result in r["results"]:
            for metric in METRICS:
                values.setdefault((r["table"], r["variant"], result["representation"], metric), []).append(result[metric])
    return [
        {
            "table": table, "variant": variant, "representation": name, "metric": metric,
            "mean": mean(v), "std": stdev(v) if len(v) > 1 else None, "seeds": len(v),
        }
        for (table, variant, name, metric), v in values.items()
    ]  # fmt: skip


if __name__ == "__main__":
    main()

"""CPC on images of CIFAR-10: 7 x 7 patches of 8 x 8 pixels; a linear probe beside the untrained encoder and raw pixels.

    python benchmarks/cpc_vision.py --data DATA [--seeds 0,1,2] [--device cuda]

DATA: CIFAR-10's folder (default: $NEARFAR_DATA/cifar10, or ~/.cache/nearfar/cifar10), or an .npz of some of
its images (x_train, y_train, x_test, y_test), whose number the rows name. Rows accumulate in
benchmarks/results/cpc_vision.json: those that are there with today's settings are not run again unless
--again is given. Protocol: trained on the training images without labels, last step; logistic regression on
the mean of the patches' features, standardised, with all labels of the training images; accuracy on the test
images. Floors in the same run: the same net before its first step, raw pixels. A row of the summary is short
where training does not gain more than twice the paired standard error over both. Settings are looked at on a
fifth of the training images only (--validate, which writes nothing).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from common import add, changes, gains_over, is_measured
from provenance import DATA, agrees, provenance, training_of

import nearfar
from nearfar.data import Images, load_images
from nearfar.evaluate import knn, linear_probe

SETTINGS = {
    "encoder": "convnet-gn", "patches_per_side": 7, "min_steps_ahead": 2, "steps_ahead": 5, "batch_size": 128, "steps": 4000,
    "lr": 1e-3, "weight_decay": 1e-4,
    "precision": "bf16",
}  # fmt: skip
TRAINED, FLOORS, METRICS = "trained encoder", ("untrained encoder", "raw pixels"), ("linear", "knn")


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    return agrees(row, SETTINGS, training_of("cpc-vision", SETTINGS))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=str(DATA / "cifar10"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of validation images and write nothing")
    parser.add_argument("--set", default="", help="other settings, as steps=200,nearest=1; the rows name them")
    parser.add_argument("--images", type=int, help="with --validate: only so many training images")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    changed = changes(args.set)
    data = within(args.data, args.images) if args.validate else args.data
    for seed in map(int, args.seeds.split(",")):
        if args.validate:
            show(row(seed, data, args.device, changed))
        elif args.again or not is_measured("cpc_vision", is_current, seed=seed):
            found = row(seed, data, args.device, changed)
            show(found)
            add("cpc_vision", found, ("seed",), lambda rows: {"summary": summary(rows)})


def within(data: str, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Training images alone, to be divided again."""
    train = load_images(data).train
    assert train.labels is not None
    chosen = np.arange(min(most or len(train), len(train)))
    return train.read(chosen).numpy(), train.labels[chosen]


def row(seed: int, data: Any, device: str, changes: dict) -> dict:
    return compared("cpc-vision", seed, data, device, SETTINGS | changes)


def compared(recipe: str, seed: int, data: Any, device: str, settings: dict) -> dict:
    """A method beside its own untrained encoder and raw pixels."""
    began = time.perf_counter()
    trained = nearfar.fit(recipe, data, seed=seed, device=device, **({"log_every": 200} | settings))
    loss = [m["loss"] for m in trained.metrics if "loss" in m][-1]
    seconds = time.perf_counter() - began
    splits, untrained = load_images(data, seed=seed), trained.build_untrained()
    train, test = splits.train, splits.test
    features = {"raw pixels": [part.read(np.arange(len(part))).flatten(1).float() / 255 for part in (train, test)]}
    features["untrained encoder"] = [untrained.encode(part) for part in (train, test)]
    features[TRAINED] = [trained.encode(part) for part in (train, test)]
    results = [measured(name, *(x.to(trained.device) for x in found), train, test) for name, found in features.items()]
    found = {"experiment": f"CIFAR-10, {len(train):,} training and {len(test):,} test images", "seed": seed, "seconds": round(seconds, 1)}
    return found | {
        "seconds_in_all": round(time.perf_counter() - began, 1),
        "loss": loss,
        "results": results,
        **provenance(settings, trained.fingerprint, training_of(recipe, settings)),
    }


def measured(name: str, a: torch.Tensor, b: torch.Tensor, train: Images, test: Images) -> dict:
    probe = linear_probe(a, train.labels, b, test.labels, standardize=name != "raw pixels")  # type: ignore[arg-type]
    near = knn(a, train.labels, b, test.labels, 20, 0.1)  # type: ignore[arg-type]
    return {
        "representation": name,
        "baseline": name != TRAINED,
        "linear": probe.accuracy,
        "converged": probe.converged,
        "knn": near.accuracy,
    }


def show(found: dict) -> None:
    print(f"{found['experiment']}, seed {found['seed']}: trained in {found['seconds']} s, {found['seconds_in_all']} s in all, "
          f"loss {found['loss']:.3f}")  # fmt: skip
    for r in found["results"]:
        print(f"  {r['representation']:18}" + "".join(f"  {m} {100 * r[m]:5.2f}" for m in METRICS), flush=True)


def summary(rows: list[dict]) -> list[dict]:
    """For each metric: what training gained over each floor, over seeds, with the standard error of the paired differences."""
    tables = [{x["representation"]: x for x in r["results"]} for r in rows]
    return [{"metric": metric, **gains_over(tables, metric, TRAINED, FLOORS)} for metric in METRICS]


if __name__ == "__main__":
    main()

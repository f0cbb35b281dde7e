"""Deep InfoMax and AMDIM on 10,000 images of CIFAR-10, on a processor: a linear probe beside the untrained encoder and raw pixels.

    python benchmarks/dim.py [--data FOLDER] [--methods dim,dim-jsd,dim-dv,amdim] [--seeds 0,1,2] [--threads 1]

FOLDER: CIFAR-10's (default: $NEARFAR_DATA/cifar10, or ~/.cache/nearfar/cifar10); the first 10,000 training
and 2,000 test images of it are used. dim is with InfoNCE, dim-jsd and dim-dv with the other estimators,
everything else alike. Rows accumulate in benchmarks/results/dim.json: those that are there with today's
settings are not run again unless --again is given. Protocol: trained on the training images without labels,
last step; logistic regression on the encoder's representation, standardised, with all labels of the training
images; kNN (k = 20, tau = 0.1); accuracy on the test images. Floors in the same run: the same net before its
first step, raw pixels. A row of the summary is short where training does not gain more than twice the paired
standard error over both. Settings are looked at on a fifth of the training images only (--validate, which
writes nothing).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import add, changes, gains_over, is_measured
from cpc_vision import FLOORS, METRICS, TRAINED, compared, show, within
from provenance import DATA, agrees, training_of
from smallcifar import pack

DIM = {"encoder": "convnet", "local_layer": -3, "batch_size": 64, "steps": 400, "lr": 1e-3}
SETTINGS = {
    "dim": DIM,
    "dim-jsd": {**DIM, "estimator": "jsd"},
    "dim-dv": {**DIM, "estimator": "dv"},
    "amdim": {"encoder": "convnet", "batch_size": 64, "steps": 200, "lr": 1e-3},
}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    settings = SETTINGS[row["method"]]
    return agrees(row, settings, training_of(row["method"].split("-")[0], settings))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=str(DATA / "cifar10"))
    parser.add_argument("--methods", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of validation images and write nothing")
    parser.add_argument("--set", default="", help="other settings, as steps=200,lr=3e-4; the rows name them")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        small = str(pack(args.data, Path(folder) / "cifar.npz"))
        for method in args.methods.split(","):
            for seed in map(int, args.seeds.split(",")):
                recipe, settings = method.split("-")[0], SETTINGS[method] | changes(args.set)
                if args.validate:
                    show(compared(recipe, seed, within(small, None), "cpu", settings))
                elif args.again or not is_measured("dim", is_current, method=method, seed=seed):
                    found = {"method": method} | compared(recipe, seed, small, "cpu", settings)
                    show(found)
                    add("dim", found, ("method", "seed"), lambda rows: {"summary": summary(rows)})


def summary(rows: list[dict]) -> list[dict]:
    """For each method and metric: what training gained over each floor, with the standard error of the paired differences."""
    found = []
    for method in sorted({r["method"] for r in rows}):
        tables = [{x["representation"]: x for x in r["results"]} for r in rows if r["method"] == method]
        found += [{"method": method, "metric": metric, **gains_over(tables, metric, TRAINED, FLOORS)} for metric in METRICS]
    return found


if __name__ == "__main__":
    main()

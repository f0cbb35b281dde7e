"""CIFAR-10 on two cores: SimCLR with the small ConvNet for a few minutes, beside raw pixels and the untrained encoder.

    python benchmarks/cifar_cpu.py [--data FOLDER] [--seeds 0,1,2] [--steps 400] [--threads 2]

FOLDER holds the authors' binary files; default: $NEARFAR_DATA/cifar10, or ~/.cache/nearfar/cifar10. Trained
on all 50,000 training images without labels; offline linear probe and kNN (k = 200, tau = 0.1) on the last
step's features, test split of the authors. Nothing is tuned on the test split. Rows of seeds accumulate in
benchmarks/results/cifar_cpu.json; with another number of steps the results are only printed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from common import add
from provenance import DATA, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit

SETTINGS: dict[str, Any] = {"steps": 400, "batch_size": 256, "encoder": "convnet", "lr": 2e-3}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=DATA / "cifar10")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=SETTINGS["steps"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    settings = SETTINGS | {"steps": args.steps}
    for seed in map(int, args.seeds.split(",")):
        began = time.perf_counter()
        model = fit("simclr", data=args.data, seed=seed, **settings)
        seconds = time.perf_counter() - began
        table = measure_model(model, args.data, k=200, tau=0.1).table
        print(f"seed {seed}: trained in {seconds:.0f} s\n{table.render()}", flush=True)
        row = {"recipe": "simclr", "seed": seed, "seconds": round(seconds, 1), "threads": args.threads}
        row |= {"protocol": table.protocol, "results": table.results}
        row |= provenance(settings, model.data_fingerprint, training_of("simclr", settings))
        if settings == SETTINGS:
            add("cifar_cpu", row, ("seed",), lambda rows: {"data": "CIFAR-10", "settings": SETTINGS})


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    return agrees(row, SETTINGS, training_of("simclr", SETTINGS))


if __name__ == "__main__":
    main()

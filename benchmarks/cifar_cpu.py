"""CIFAR-10 on two cores: SimCLR with the small ConvNet for a few minutes, beside raw pixels and the untrained encoder.

    python benchmarks/cifar_cpu.py --data FOLDER [--seeds 0,1,2] [--steps 400] [--threads 2]

FOLDER holds the authors' binary files. Trained on all 50,000 training images without labels; offline linear probe and kNN (k = 200,
tau = 0.1) on the last step's features, test split of the authors. Nothing is tuned on the test split. Rows of seeds accumulate in
benchmarks/results/cifar_cpu.json; other --steps begin anew.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from common import RESULTS, write

from nearfar.app.api import fit
from nearfar.app.results import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    settings = {"steps": args.steps, "batch": 256, "encoder": "convnet", "lr": 2e-3}
    for seed in map(int, args.seeds.split(",")):
        began = time.perf_counter()
        trained = fit("simclr", data=args.data, seed=seed, **settings)
        seconds = time.perf_counter() - began
        table = measure(trained, args.data, k=200, tau=0.1).table
        print(f"seed {seed}: trained in {seconds:.0f} s\n{table.render()}", flush=True)
        row = {"recipe": "simclr", "seed": seed, "seconds": round(seconds, 1), "threads": args.threads}
        keep(settings, row | {"protocol": table.protocol, "results": table.results})


def keep(settings: dict, row: dict) -> None:
    path = RESULTS / "cifar_cpu.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    rows = [r for r in found.get("rows", []) if r["seed"] != row["seed"]] if found.get("settings") == settings else []
    write("cifar_cpu", {"data": "CIFAR-10", "settings": settings, "rows": sorted([*rows, row], key=lambda r: r["seed"])})


if __name__ == "__main__":
    main()

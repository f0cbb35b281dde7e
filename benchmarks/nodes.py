"""DGI on Cora's public split: frozen embeddings, logistic regression on 140 labels, beside raw features and the untrained encoder.

    python benchmarks/dgi.py --data ~/.cache/nearfar/cora [--seeds 20]

Rows accumulate in benchmarks/results/dgi.json: seeds that are there are not run again unless --again is given.
Settings are the authors' (`paper` of nearfar/recipes/graph/dgi.py), but for the length: they stop when the training loss has not fallen
for 20 epochs, which seed 0 reaches after 254; here all seeds run 250 steps, and the last counts. Classifier:
logistic regression on embeddings as they are, its penalty C chosen on the 500 validation nodes, for every row of the table alike; then
the accuracy on the 1,000 test nodes. Test labels chose nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, write

from nearfar.app.api import fit
from nearfar.app.kinds.graph import NodeKind
from nearfar.data.opennodes import read_nodes
from nearfar.evaluate import fit_linear

PENALTIES = [10.0**k for k in range(-3, 6)]


def accuracy(x: torch.Tensor, y: torch.Tensor, masks: dict[str, np.ndarray]) -> dict[str, float]:
    """On the test nodes, by the penalty that is best on the validation nodes; the smallest C of equals."""
    train, val, test = (torch.from_numpy(masks[name].nonzero()[0]) for name in ("train", "val", "test"))
    found = []
    for C in PENALTIES:
        classifier = fit_linear(x[train], y[train], C)
        shares = [float((classifier.predict(x[part]) == y[part]).float().mean()) for part in (val, test)]
        found.append({"C": C, "validation": shares[0], "test": shares[1]})
    return max(found, key=lambda f: f["validation"])


def summary(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, "runs": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cora.npz: x, edge_index, y and masks train, val, test")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    nodes = read_nodes(args.data).every
    with np.load(next(args.data.glob("*.npz")), allow_pickle=False) as archive:
        masks = {name: archive[name] for name in ("train", "val", "test")}
    y = torch.from_numpy(np.asarray(nodes.labels))
    floors = {name: accuracy(torch.as_tensor(f.train), y, masks) for name, f in NodeKind().baselines(nodes, nodes, None).items()}
    path = RESULTS / "dgi.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() and not args.again else []
    for seed in range(args.seeds):
        if any(row["seed"] == seed for row in rows):
            continue
        began = time.perf_counter()
        trained = fit("dgi", args.data, preset="paper", seed=seed)
        seconds = time.perf_counter() - began
        found = {name: accuracy(who.encode(nodes), y, masks) for name, who in (("untrained", trained.untrained()), ("dgi", trained))}
        rows.append({"seed": seed, "seconds": round(seconds, 1), **found})
        print(
            f"seed {seed}: {seconds:.0f} s, test {100 * found['dgi']['test']:.1f}, untrained {100 * found['untrained']['test']:.1f}",
            flush=True,
        )
        settings = {k: v for k, v in dataclasses.asdict(trained.run).items() if k in ("encoder", "steps", "lr", "weight_decay", "schedule")}
        result = {
            "data": {
                "name": "cora",
                "fingerprint": nodes.store.fingerprint,
                "split": "public: 140 train, 500 validation, 1,000 test nodes",
            },
            "settings": settings,
            "published": "82.3 ± 0.6 (arXiv:1809.10341, mean of 50)",
            "test accuracy": {name: summary([row[name]["test"] for row in rows]) for name in ("untrained", "dgi")},
            "floors": floors,
            "rows": rows,
        }
        write("dgi", result)


if __name__ == "__main__":
    main()

"""CLIP on emojis of two vendors: the name finds the drawing, and one vendor's drawing finds the other's; test emojis were never seen.

    python benchmarks/emoji.py [--seeds 0,1,2] [--validate]

Rows accumulate in benchmarks/results/emoji.json: seeds that are there are not run again unless --again is given.
Data: 1,911 emojis with their names, drawn by Google and by Twitter, in $NEARFAR_DATA/emoji or ~/.cache/nearfar/emoji.
Protocol: one emoji in five, drawn by the seed, is for testing, with both drawings; trained from scratch on the others, last step.
Recall at 1, 5 and 10 between drawings and names (any name of an emoji, any drawing of it counts), and from one vendor's drawing to the
other's. Floors in the same run: chance; borrowed words (the names of the training drawings nearest in raw pixels); the untrained
encoders; between drawings raw pixels (less the training mean, cosine). Zero-shot: the category by its name, which no caption
mentions, beside the share of the largest category. Settings are looked at with --validate only: the test emojis are put aside, and one
in five of the rest is measured on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from common import RESULTS, write

from nearfar.app.api import fit
from nearfar.app.kinds.image import _raw as raw_pixels
from nearfar.app.results import measure
from nearfar.core import Run
from nearfar.data import inputs_for
from nearfar.data.captions import Captioned
from nearfar.data.captionsets import vendor_of
from nearfar.evaluate.crossmodal import recall_at
from nearfar.recipes import method

DATA = Path(os.environ.get("NEARFAR_DATA", Path.home() / ".cache" / "nearfar")) / "emoji"
SETTINGS = {
    "image_size": 32, "encoder": "convnet", "text_encoder": "bag", "vocabulary": 2048, "length": 24, "batch": 128, "epochs": 50, "lr": 2e-3,
    "weight_decay": 0.1, "dropout": 0.3, "crop": 0.85, "prompts": ("{}",),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of validation emojis and write nothing")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    path = RESULTS / "emoji.json"
    for seed in map(int, args.seeds.split(",")):
        if args.validate:
            show(row(seed, validate=True))
            continue
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        if any(r["seed"] == seed for r in rows) and not args.again:
            continue
        rows = sorted([r for r in rows if r["seed"] != seed] + [row(seed)], key=lambda r: r["seed"])
        show(next(r for r in rows if r["seed"] == seed))
        write("emoji", {"settings": SETTINGS, "summary": summary(rows), "rows": rows})


def row(seed: int, validate: bool = False) -> dict:
    source = str(DATA)
    if validate:
        opened = inputs_for(method("clip").recipe()).open(source, Run(data=source, image_size=SETTINGS["image_size"], seed=seed))
        source = opened.train
    began = time.perf_counter()
    trained = fit("clip", source, seed=seed, **SETTINGS)
    seconds = time.perf_counter() - began
    found = measure(trained, source)
    train, test = found.splits.train, found.splits.test
    pixels = [raw_pixels(part.images).flatten(1) for part in (train, test)]
    drawings = {"raw pixels": pixels[1] - pixels[0].mean(0), "untrained encoders": found.untrained, "trained encoders": found.test}
    largest = int(np.bincount(train.labels).argmax())
    return {
        "seed": seed, "seconds": round(seconds, 1), "steps": trained.step, "train": len(train.things), "test": len(test.things),
        "largest category": float((test.labels == largest).mean()), "protocol": found.table.protocol, "results": found.table.results,
        "drawings": {name: between_vendors(test, vectors) for name, vectors in drawings.items()},
    }  # fmt: skip


def between_vendors(test: Captioned, vectors: torch.Tensor) -> dict[str, float]:
    """Recall from each vendor's drawing to the other's of the same emoji, among all test emojis; the mean of both directions."""
    vendor = vendor_of(test)
    pairs = [test.things.of(g) for g in range(len(test.things)) if len(test.things.of(g)) == 2]
    first, second = np.array([sorted(pair, key=lambda i: vendor[i]) for pair in pairs]).T
    right = torch.arange(len(pairs))[:, None].expand(-1, 2)
    ways = [recall_at(vectors[a], vectors[b], right) for a, b in ((first, second), (second, first))]
    return {f"drawing_{k}": (ways[0][k] + ways[1][k]) / 2 for k in ways[0]}


def show(found: dict) -> None:
    print(f"seed {found['seed']}: {found['train']} emojis to learn from, {found['test']} to test on, {found['seconds']} s")
    for r in found["results"]:
        numbers = "  ".join(f"{name} {100 * r[name]:.1f}" for name in (*found["protocol"]["accuracies"],))
        print(f"  {r['representation']:20} {numbers}")
    for name, r in found["drawings"].items():
        print(f"  {name:20} {'  '.join(f'{k} {100 * v:.1f}' for k, v in r.items())}")
    print(f"  largest category     zero_shot {100 * found['largest category']:.1f}", flush=True)


def summary(rows: list[dict]) -> list[dict]:
    """For each measure and representation the mean and the standard deviation over seeds."""
    values: dict[tuple[str, str], list[float]] = {}
    for r in rows:
        tables = [(x["representation"], {k: x[k] for k in r["protocol"]["accuracies"]}) for x in r["results"]] + [*r["drawings"].items()]
        for name, numbers in [*tables, ("largest category", {"zero_shot": r["largest category"]})]:
            for metric, value in numbers.items():
                values.setdefault((metric, name), []).append(value)
    return [
        {"metric": metric, "representation": name, "mean": mean(v), "std": stdev(v) if len(v) > 1 else None, "seeds": len(v)}
        for (metric, name), v in sorted(values.items())
    ]


if __name__ == "__main__":
    main()

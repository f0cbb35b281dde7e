"""CLIP on Flickr8k: photographs find their captions and captions their photographs; written for a GPU.

    python benchmarks/flickr8k.py --device cuda [--experiments scratch,minilm] [--seeds 0,1,2] [--validate]

Rows accumulate in benchmarks/results/flickr8k.json: those that are there with today's settings are not run again unless --again is given,
and several processes may run at the same time.
Data: Flickr8k (8,091 photographs at 64 pixels, five captions each) in $NEARFAR_DATA/flickr8k or ~/.cache/nearfar/flickr8k; for the
experiment `minilm`, a text tower with pre-trained weights in $NEARFAR_DATA/minilm.
Protocol: the published split (6,000 to learn from, 1,000 to test on); last step; recall at 1, 5 and 10 both ways, an image among the
captions of all test images (each text once, any of its five counts), a caption among all test images. Floors in the same run: chance,
borrowed words (captions of the training photographs nearest in raw pixels), the untrained encoders. Settings are looked at with
--validate only: the 1,000 development images take the place of the test images.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean, stdev
from typing import Any

import torch
from common import add, is_measured
from pictures import bootstrapped, verdicts
from provenance import DATA, agrees, portable, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import UsageError
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.image_text.readers import read_flickr8k
from nearfar.modalities.image_text import measure_cross_modal
from nearfar.train.model import Model

COMMON = {
    "encoder": "resnet18",
    "batch_size": 512,
    "epochs": 60,
    "weight_decay": 0.2,
    "max_length": 40,
    "precision": "bf16",
    "min_crop_scale": 0.5,
    "dim": 256,
}
SETTINGS = {
    "scratch": COMMON | {"text_encoder": "bert-mini", "vocab_size": 4096, "lr": 1e-3},
    "bag": COMMON | {"text_encoder": "bag", "vocab_size": 4096, "lr": 1e-3},
    "minilm": COMMON | {"text_encoder": f"hf:{DATA / 'minilm'}", "tokenizer": str(DATA / "minilm"), "lr": 5e-4},
}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    settings = SETTINGS[row["experiment"]]
    return agrees(row, settings, training_of("clip", settings))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", default="scratch,bag")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--validate", action="store_true", help="print numbers of the development images and write nothing")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    for name in args.experiments.split(","):
        if name not in SETTINGS:
            raise UsageError(f"--experiments {name}: there are {', '.join(SETTINGS)}")
        for seed in map(int, args.seeds.split(",")):
            there = is_measured("flickr8k", is_current, experiment=name, seed=seed)
            if there and not args.again and not args.validate:
                continue
            found = row(name, seed, args.device, args.validate)
            show(found)
            if not args.validate:
                add("flickr8k", found, ("experiment", "seed"), about)


def about(rows: list[dict]) -> dict:
    names = dict.fromkeys(r["experiment"] for r in rows)
    judged = {name: verdicts([r for r in rows if r["experiment"] == name]) for name in names}
    return {"settings": portable(SETTINGS), "summary": summary(rows), "verdicts": judged}


def row(name: str, seed: int, device: str, validate: bool) -> dict:
    source = str(DATA / "flickr8k")
    began = time.perf_counter()
    model = fit("clip", source, seed=seed, device=device, **SETTINGS[name])
    seconds = round(time.perf_counter() - began, 1)
    made = {"experiment": name, "seed": seed, "seconds": seconds, "steps": model.step}
    made |= provenance(SETTINGS[name], model.data_fingerprint, training_of("clip", SETTINGS[name]))
    if validate:
        return made | {"results": [on_development(model)]}
    found = measure_model(model)
    return made | {"protocol": found.table.protocol, "results": found.table.results, "bootstrap": bootstrapped(model, found)}


def on_development(model: Model) -> dict:
    """The trained encoders on the images for choosing settings; nothing of the test split is opened."""
    found = read_flickr8k(DATA / "flickr8k", ImageReadOptions(model.net.sizes["size"]), "flickr8k", test_split="dev").test
    return {"representation": "trained encoders"} | measure_cross_modal(found, model.encode(found), model.encode, ("a photo of a {}",))


def show(found: dict) -> None:
    print(f"{found['experiment']} seed {found['seed']}: {found['steps']} steps in {found['seconds']} s")
    for r in found["results"]:
        numbers = "  ".join(f"{k} {100 * v:.1f}" for k, v in r.items() if k.startswith("to_"))
        print(f"  {r['representation']:20} {numbers}", flush=True)


def summary(rows: list[dict]) -> list[dict]:
    """For each experiment, measure and representation the mean and the standard deviation over seeds."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for r in rows:
        for x in r["results"]:
            for metric in r["protocol"]["accuracies"]:
                values.setdefault((r["experiment"], metric, x["representation"]), []).append(x[metric])
    return [
        {"experiment": e, "metric": m, "representation": who, "mean": mean(v), "std": stdev(v) if len(v) > 1 else None, "seeds": len(v)}
        for (e, m, who), v in sorted(values.items())
    ]


if __name__ == "__main__":
    main()

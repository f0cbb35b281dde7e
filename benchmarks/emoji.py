"""CLIP on emojis of two vendors: the name finds the drawing, and one vendor's drawing finds the other's; test emojis were never seen.

    python benchmarks/emoji.py --trials [--seeds 0,1] [--device cuda] [--part 1/4]      select settings on validation emojis
    python benchmarks/emoji.py [--seeds 0,1,2] [--device cuda]                          measure on test emojis

Rows accumulate in benchmarks/results/emoji.json and emoji_trials.json: those that are there with today's settings are not run again unless
--again is given, and several processes may run at the same time.
Data: 1,911 emojis with their names, drawn by Google and by Twitter, in $NEARFAR_DATA/emoji or ~/.cache/nearfar/emoji.
Protocol: one emoji in five, drawn by the seed, is for testing, with both drawings; trained from scratch on the others, last step.
Recall at 1, 5 and 10 between drawings and names (any name of an emoji, any drawing of it counts), and from one vendor's drawing to the
other's. Floors in the same run: chance; borrowed words (the names of the training drawings nearest in raw pixels); the untrained
encoders; between drawings raw pixels (less the training mean, cosine). Zero-shot: the category by its name, which no caption
mentions, beside the share of the largest category. Settings are selected by trials on validation emojis: the test emojis are left out
and one in five of the rest is measured on. The trial with the largest mean recall, over k, both ways and seeds, is used. Without stored
trials the settings are those in COMMON; the stored rows were measured like that.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from common import add, is_measured, known
from pictures import bootstrapped, gained, verdicts
from provenance import DATA, FIELDS, agrees, provenance, training_of

from nearfar.api.evaluate import measure_model
from nearfar.api.fit import fit
from nearfar.core import TrainConfig
from nearfar.data.image_text.dataset import CaptionedImages
from nearfar.data.image_text.readers import get_vendors
from nearfar.evaluate.cross_modal import hits_at
from nearfar.modalities import find_modality
from nearfar.modalities.image import read_raw_pixels
from nearfar.recipes import load_method

COMMON: dict[str, Any] = {
    "image_size": 32, "encoder": "convnet", "text_encoder": "bag", "vocab_size": 2048, "max_length": 24, "batch_size": 128,
    "epochs": 50, "lr": 2e-3,
    "weight_decay": 0.1, "dropout": 0.3, "min_crop_scale": 0.85, "prompts": ("{}",),
}  # fmt: skip
LARGE = {"image_size": 64, "encoder": "resnet18", "epochs": 100, "lr": 1e-3}
TRIALS: dict[str, dict[str, Any]] = {
    "as it was": {},
    "100 epochs": {"epochs": 100},
    "100 epochs, crop 0.6": {"epochs": 100, "min_crop_scale": 0.6},
    "100 epochs, crop 0.6, decay 0.5, dropout 0.5": {"epochs": 100, "min_crop_scale": 0.6, "weight_decay": 0.5, "dropout": 0.5},
    "batch 512": {"batch_size": 512, "epochs": 150},
    "whole words": {"epochs": 100, "min_crop_scale": 0.6, "vocab_size": 4096, "dim": 256},
    "ResNet-18": LARGE,
    "ResNet-18, crop 0.6": LARGE | {"min_crop_scale": 0.6},
    "ResNet-18, crop 0.4": LARGE | {"min_crop_scale": 0.4},
    "ResNet-18, crop 0.6, 200 epochs": LARGE | {"min_crop_scale": 0.6, "epochs": 200},
    "ResNet-18, crop 0.6, decay 0.5, dropout 0.5": LARGE | {"min_crop_scale": 0.6, "weight_decay": 0.5, "dropout": 0.5},
    "ResNet-18, crop 0.6, batch 512": LARGE | {"min_crop_scale": 0.6, "batch_size": 512, "epochs": 200},
    "ResNet-18, crop 0.6, tau 0.2": LARGE | {"min_crop_scale": 0.6, "temperature": 0.2},
    "ResNet-18, crop 0.6, BERT-mini": LARGE | {"min_crop_scale": 0.6, "text_encoder": "bert-mini", "lr": 5e-4},
}
RECALLS = [f"to_{way}_{k}" for way in ("text", "image") for k in (1, 5, 10)]


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings of that name."""
    settings = COMMON | TRIALS.get(row["setting"], {})
    return row["setting"] in TRIALS and agrees(row, settings, training_of("clip", settings))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", action="store_true", help="measure all settings on validation emojis")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", default="1/1", help="i/n: of the trials, the i-th of n parts, for several processes at the same time")
    parser.add_argument("--again", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    if args.trials:
        return try_all(args, seeds)
    name = best()
    for seed in seeds:
        if args.again or not is_measured("emoji", is_current, seed=seed, setting=name):
            found = row(seed, name, args.device)
            show(found)
            add("emoji", found, ("seed",), lambda rows: about(rows, name))


def about(rows: list[dict], name: str) -> dict:
    own = [r for r in rows if r["setting"] == name]
    return {"chosen": name, "settings": COMMON | TRIALS[name], "summary": summary(own), "verdicts": verdicts(own)}


def try_all(args: argparse.Namespace, seeds: list[int]) -> None:
    part, parts = map(int, args.part.split("/"))
    for seed in seeds:
        for name in list(TRIALS)[part - 1 :: parts]:
            if args.again or not is_measured("emoji_trials", is_current, setting=name, seed=seed):
                found = row(seed, name, args.device, validate=True)
                show(found)
                trained = next(r for r in found["results"] if r["representation"] == "trained encoders")
                kept = {name: value for name, value in found.items() if name in ("setting", "seed", "seconds", "resolved", *FIELDS)}
                add("emoji_trials", kept | {k: trained[k] for k in RECALLS}, ("setting", "seed"), lambda rows: {})


def best() -> str:
    """The settings with the largest mean recall on validation emojis, among those that were tried with most seeds."""
    tried: dict[str, list[float]] = {}
    for r in known("emoji_trials"):
        tried.setdefault(r["setting"], []).append(mean(r[k] for k in RECALLS))
    most = max((len(values) for values in tried.values()), default=0)
    return max((name for name, values in tried.items() if len(values) == most), key=lambda name: mean(tried[name]), default="as it was")


def row(seed: int, name: str, device: str, validate: bool = False) -> dict:
    source, settings = str(DATA / "emoji"), COMMON | TRIALS[name]
    if validate:
        opened = (
            find_modality(load_method("clip").recipe_class.card.modality)
            .build_inputs()
            .load_splits(source, TrainConfig(data=source, image_size=settings["image_size"], seed=seed))
        )
        source = opened.train
    began = time.perf_counter()
    model = fit("clip", source, seed=seed, device=device, **settings)
    seconds = time.perf_counter() - began
    found = measure_model(model, source)
    train, test = found.splits.train, found.splits.test
    pixels = [read_raw_pixels(part.images).flatten(1) for part in (train, test)]
    vectors = {
        "raw pixels": pixels[1] - pixels[0].mean(0),
        "untrained encoders": found.untrained_features,
        "trained encoders": found.test_features,
    }
    drawings = {who: between_vendors(test, x) for who, x in vectors.items()}
    gains = {k: gained(hits, drawings["raw pixels"][k]) for k, hits in drawings["trained encoders"].items()}
    largest = int(np.bincount(train.labels).argmax())
    return {
        "seed": seed, "setting": name, "seconds": round(seconds, 1), "steps": model.step, "train": len(train.images_by_object),
        "test": len(test.images_by_object), "largest category": float((test.labels == largest).mean()), "protocol": found.table.protocol,
        "results": found.table.results, "bootstrap": bootstrapped(model, found) | gains,
        "drawings": {who: {k: float(hits.mean()) for k, hits in of.items()} for who, of in drawings.items()},
        **provenance(settings, model.data_fingerprint, training_of("clip", settings)),
    }  # fmt: skip


def between_vendors(test: CaptionedImages, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """For each test emoji whether one vendor's drawing finds the other's, among all test emojis; the mean of both directions."""
    vendor = get_vendors(test)
    pairs = [
        test.images_by_object.get_members(g) for g in range(len(test.images_by_object)) if len(test.images_by_object.get_members(g)) == 2
    ]
    first, second = np.array([sorted(pair, key=lambda i: vendor[i]) for pair in pairs]).T
    right = torch.arange(len(pairs))[:, None].expand(-1, 2)
    ways = [hits_at(vectors[a], vectors[b], right) for a, b in ((first, second), (second, first))]
    return {f"drawing_{k}": (ways[0][k] + ways[1][k]) / 2 for k in ways[0]}


def show(found: dict) -> None:
    print(f"{found['setting']}, seed {found['seed']}: {found['train']} emojis to learn from, {found['test']} to test on")
    for r in found["results"]:
        numbers = "  ".join(f"{name} {100 * r[name]:.1f}" for name in (*found["protocol"]["accuracies"],))
        print(f"  {r['representation']:20} {numbers}")
    for name, r in found["drawings"].items():
        print(f"  {name:20} {'  '.join(f'{k} {100 * v:.1f}' for k, v in r.items())}")
    print(f"  largest category     zero_shot {100 * found['largest category']:.1f}; {found['seconds']} s", flush=True)


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

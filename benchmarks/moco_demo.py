"""MoCo as in its authors' demonstration on CIFAR-10, measured where they measure: kNN on the outputs of the head.

    python benchmarks/moco_demo.py [--data FOLDER] [--seed 0] [--mean]

The demonstration (github.com/facebookresearch/moco, colab/moco_cifar10_demo.ipynb, symmetric loss, 200 epochs) reports 85.3 % kNN.
It *adds* the two losses of the symmetric form; nearfar's `symmetric` takes their mean. With SGD, twice the loss at learning rate 0.06
and weight decay 5e-4 is the same as their mean at 0.12 and 2.5e-4, which this script uses. `--mean` keeps 0.06 and 5e-4 for the mean, as
earlier rows did. Like the demonstration: a linear head, no warm-up, crops from 8 % of the image on, no blur. Unlike it: bf16, images not
standardized per channel, one learning rate a step instead of an epoch. Rows accumulate in benchmarks/results/moco_demo.json.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

from cifar import TRAINED, WITH_HEAD, features, measured
from common import add
from provenance import DATA, agrees, provenance, training_of

import nearfar
from nearfar.core import Net
from nearfar.data import load_images
from nearfar.recipes.vision.moco import MoCo
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, Grayscale, ImageViews

PUBLISHED = 0.853
METHOD = {"queue_size": 4096, "ema_momentum": 0.99, "temperature": 0.1, "symmetric": True, "batch_norm_groups": 8}
TRAINING: dict[str, Any] = {
    "encoder": "resnet18", "batch_size": 512, "epochs": 200, "optimizer": "sgd", "momentum": 0.9, "decay_params": "all",
    "warmup_ratio": 0.0,
    "precision": "bf16", "compile": True, "log_every": 50,
}  # fmt: skip
SUM = {"lr": 0.12, "weight_decay": 2.5e-4}
MEAN = {"lr": 0.06, "weight_decay": 5e-4}


class DemoMoCo(MoCo):
    """MoCo with the demonstration's views."""

    def similarity(self, net: Net) -> ImageViews:
        size = net.sizes["size"]
        view = Compose(Crop(size, scale=(0.08, 1.0)), Flip(), ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.2))
        return ImageViews.repeat(view, 2)


def measure(data: str, seed: int, scale: dict[str, float]) -> dict[str, Any]:
    """Train once and measure the encoder and the head's outputs."""
    start = time.perf_counter()
    trained = nearfar.fit(DemoMoCo(**METHOD), data=data, seed=seed, **TRAINING, **scale)
    seconds = round(time.perf_counter() - start, 1)
    splits = load_images(data)
    assert splits.test is not None
    found = {
        "untrained encoder": features(trained.build_untrained().encode, splits.train, splits.test),
        TRAINED: features(trained.encode, splits.train, splits.test),
        WITH_HEAD: features(partial(trained.encode, tower="query"), splits.train, splits.test),
    }
    results = measured(found, (splits.train.labels, splits.test.labels))
    told = provenance(settings(scale), trained.fingerprint, training_of(DemoMoCo(**METHOD), {**TRAINING, **scale}))
    return {"seed": seed, "seconds": seconds, "results": results, **told}


def settings(scale: dict[str, float]) -> dict[str, Any]:
    """Return the settings of a run with this learning rate and weight decay."""
    return {**METHOD, **TRAINING, **scale}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if a row has today's settings."""
    scale = {"sum": SUM, "mean": MEAN}[row["loss"]]
    return agrees(row, settings(scale), training_of(DemoMoCo(**METHOD), {**TRAINING, **scale}))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=str(DATA / "cifar10"), help="CIFAR-10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean", action="store_true", help="lr 0.06 and weight decay 5e-4 for the mean of the two losses")
    return parser


def main() -> None:
    args = parser().parse_args()
    row = {"loss": "mean" if args.mean else "sum", **measure(args.data, args.seed, MEAN if args.mean else SUM)}
    add("moco_demo", row, by=("loss", "seed"), about=lambda rows: {"published kNN, head": PUBLISHED})


if __name__ == "__main__":
    main()

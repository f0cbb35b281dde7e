"""How fast are views? SimCLR's pipeline here and in kornia, in the same run, on the CPU.

    pip install --no-deps kornia kornia_rs
    python benchmarks/views.py [--batch 256] [--size 32] [--repeats 50]

Both pipelines do the same operations in the same order with the same settings: random resized crop (bilinear),
horizontal flip, colour jitter with p = 0.8, greyscale with p = 0.2, Gaussian blur with p = 0.5, each image with its
own parameters; drawing the parameters is inside the timing. kornia crops in one of two ways ("slice" and
"resample"); the ratio is taken against the faster one. Repeats of all pipelines are interleaved, and the median
counts. Prints a table and writes benchmarks/results/views.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from common import write
from provenance import GENERATED, agrees, provenance
from torch import Tensor, nn

from nearfar.core import RandomKey
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, GaussianBlur, Grayscale

WARM_UP = 3


def ours(size: int) -> Callable[[Tensor], Tensor]:
    pipeline = Compose(
        Crop(size), Flip(), ColorJitter(0.8, 0.8, 0.8, 0.2, prob=0.8), Grayscale(prob=0.2), GaussianBlur((0.1, 2.0), prob=0.5)
    )
    rng_key, step = RandomKey(0)("views"), itertools.count()

    def run(x: Tensor) -> Tensor:
        first = next(step) * len(x)
        return pipeline(x, torch.arange(first, first + len(x)), rng_key)

    return run


def kornias(size: int, cropping: str) -> Callable[[Tensor], Tensor]:
    """Build kornia's pipeline with one of its two ways of cropping."""
    from kornia import augmentation as K

    kernel = 2 * (size // 20) + 1
    return nn.Sequential(
        K.RandomResizedCrop((size, size), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), cropping_mode=cropping),
        K.RandomHorizontalFlip(p=0.5),
        K.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((kernel, kernel), (0.1, 2.0), p=0.5),
    )


def medians(pipelines: dict[str, Callable[[Tensor], Tensor]], x: Tensor, repeats: int) -> dict[str, float]:
    """Milliseconds a batch."""
    times: dict[str, list[float]] = {name: [] for name in pipelines}
    for _ in range(WARM_UP + repeats):
        for name, pipeline in pipelines.items():
            start = time.perf_counter()
            pipeline(x)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(t[WARM_UP:]) for name, t in times.items()}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has the default settings of this script."""
    return agrees(row, vars(parser().parse_args([])))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=50)
    return parser


def main() -> None:
    config = vars(parser().parse_args())
    x = torch.rand(config["batch"], 3, config["size"], config["size"], generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    pipelines = {"nearfar": ours(config["size"])} | {f"kornia ({c})": kornias(config["size"], c) for c in ("slice", "resample")}

    results = []
    print(f"{'threads':>7}" + "".join(f"{name:>19}" for name in pipelines) + f"{'ratio':>9}")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        ms = medians(pipelines, x, config["repeats"])
        ratio = min(t for name, t in ms.items() if name != "nearfar") / ms["nearfar"]
        results.append({"threads": threads, "ms": {name: round(t, 3) for name, t in ms.items()}, "ratio": round(ratio, 2)})
        print(f"{threads:>7}" + "".join(f"{t:>16.2f} ms" for t in ms.values()) + f"{ratio:>8.1f}x")

    print(f"written to {write('views', {'results': results, 'kornia': version('kornia'), **provenance(config, GENERATED)})}")


if __name__ == "__main__":
    main()

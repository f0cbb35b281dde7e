"""How fast are images read that do not fit into memory? nearfar's reading path beside bare Pillow loops, in the same run.

    python benchmarks/jpegs.py [--images 600] [--rounds 5] [--batch 32] [--size 224]

The files: CIFAR-10 images (laid out in $NEARFAR_DATA/cifar10 or ~/.cache/nearfar/cifar10) scaled to between
224 and 500 pixels a side, with noise that brings them to about the half byte a pixel of photographs, as JPEGs
in a temporary folder. Files are in the page cache on all sides.

    one picture   open, decode, scale the whole to `size` pixels: one process, one bare loop
    two windows   open, decode, cut two random windows and scale each: what every loader for SimCLR must do
    nearfar       the loader of a training with 1 and 2 worker processes: both views' windows, batched, handed over to the main
                  process; all of the views' random numbers are keyed. Timed from the first batch on: starting processes is left out

The processor time of an image, on all its cores together, is measured beside the rates (nearfar: reading in the main process): it
hardly depends on what else the machine is doing.

Rounds are interleaved and the best of each counts (other work on the machine only ever takes away). Memory is what the main
process and its workers hold (resident; what they share is counted in each) before the first batch, after a third of them and at
the last. Writes benchmarks/results/jpegs.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write
from PIL import Image
from provenance import DATA, agrees, provenance

import nearfar.data.images.image_folder
from nearfar.core import Plan, RandomKey
from nearfar.data import Images, load_images
from nearfar.similarity import simclr_views
from nearfar.train.loader import StepDataset, iterate_batches

SOURCE = DATA / "cifar10"
SHORTEST, LONGEST = 224, 500
PAGE = os.sysconf("SC_PAGE_SIZE")


def make_jpegs(folder: Path, count: int) -> None:
    pictures = load_images(SOURCE).train
    draw = np.random.default_rng(0)
    for i in range(count):
        width, height = draw.integers(SHORTEST, LONGEST + 1, 2)
        picture = Image.fromarray(pictures.read([i])[0].permute(1, 2, 0).numpy().copy())
        grown = np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
        noisy = grown + draw.normal(0, 14, (height, width, 1))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{i:06}.jpg", quality=92)


def one_picture(paths: list[Path], size: int) -> None:
    for path in paths:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))


def two_windows(paths: list[Path], size: int) -> None:
    draw = np.random.default_rng(0)
    for path in paths:
        with Image.open(path) as image:
            picture = image.convert("RGB")
        for _ in range(2):
            share = draw.uniform(0.08, 1) ** 0.5
            width, height = max(1, int(share * picture.width)), max(1, int(share * picture.height))
            left, top = int(draw.integers(picture.width - width + 1)), int(draw.integers(picture.height - height + 1))
            window = picture.crop((left, top, left + width, top + height))
            np.asarray(window.resize((size, size), Image.Resampling.BILINEAR))


BARE = {"bare Pillow, one picture": one_picture, "bare Pillow, two windows": two_windows}


def bare(loop: Callable[[list[Path], int], None], paths: list[Path], size: int) -> tuple[float, float]:
    """Images a second, and milliseconds of processor time an image."""
    began, busy = time.perf_counter(), time.process_time()
    loop(paths, size)
    return len(paths) / (time.perf_counter() - began), (time.process_time() - busy) / len(paths) * 1e3


def ours(data: Images, size: int, batch: int, workers: int) -> tuple[float, list[float]]:
    """Images a second, and MB resident in all processes before, after a third of the batches and at the last."""
    plan = Plan(len(data), batch, RandomKey(0))
    steps = StepDataset(data, simclr_views(size), plan, RandomKey(0)("read"), None)
    memory = [resident()]
    came = iterate_batches(steps, 0, plan.steps_per_epoch, workers, torch.device("cpu"))
    next(came)
    began, read = time.perf_counter(), 0
    for _, parts, _ in came:
        read += sum(map(len, parts))
        memory.append(resident())
    return read / (time.perf_counter() - began), [memory[0], memory[len(memory) // 3], memory[-1]]


def processor_time(data: Images, size: int, batch: int) -> float:
    """Milliseconds an image to read both windows."""
    similarity, plan = simclr_views(size), Plan(len(data), batch, RandomKey(0))
    busy = time.process_time()
    for step in range(plan.steps_per_epoch):
        similarity.read(data, plan.get_rows(step), RandomKey(0))
    return (time.process_time() - busy) / (plan.steps_per_epoch * batch) * 1e3


def resident() -> float:
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * PAGE / 2**20


def measure(folder: Path, size: int, batch: int, rounds: int) -> dict[str, dict[str, Any]]:
    """By name: the best rate, the least processor time, the memory of the last round."""
    paths = sorted(folder.iterdir())
    data = load_images(folder, image_size=size, test_ids=[]).train
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, loop in BARE.items():
            rate, busy = bare(loop, paths, size)
            found[name] = better(found.get(name), rate, busy)
        busy = processor_time(data, size, batch)
        for workers in (1, 2):
            rate, memory = ours(data, size, batch, workers)
            name = f"nearfar, workers: {workers}"
            found[name] = better(found.get(name), rate, busy) | {
                "resident_mb": dict(zip(("before", "after a third", "at last"), memory, strict=True))
            }
    return found


def better(best: dict[str, Any] | None, rate: float, busy: float) -> dict[str, Any]:
    if best:
        rate, busy = max(rate, best["images_per_second"]), min(busy, best["cpu_ms"])
    return {"images_per_second": rate, "cpu_ms": busy}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has the default settings of this script."""
    return agrees(row, vars(parser().parse_args([])))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    return parser


def main() -> None:
    config = vars(parser().parse_args())
    nearfar.data.images.image_folder.MAX_BYTES_IN_MEMORY = 0  # as if the images did not fit
    with tempfile.TemporaryDirectory() as made:
        make_jpegs(Path(made), config["images"])
        kilobytes = sum(path.stat().st_size for path in Path(made).iterdir()) / config["images"] / 1e3
        found = measure(Path(made), config["size"], config["batch"], config["rounds"])

    print(f"{config['images']} JPEGs of {SHORTEST} to {LONGEST} pixels a side, {kilobytes:.0f} kB each; ratios to two windows")
    two = found["bare Pillow, two windows"]
    for name, row in found.items():
        row |= {"ratio": row["images_per_second"] / two["images_per_second"], "cpu_ratio": two["cpu_ms"] / row["cpu_ms"]}
        held = "".join(f"   {mb:,.0f} MB {when}" for when, mb in row.get("resident_mb", {}).items())
        print(
            "{:>24}{images_per_second:>7.0f} images/s ({ratio:.2f}x){cpu_ms:>7.2f} ms of CPU ({cpu_ratio:.2f}x)".format(name, **row) + held
        )
    told = provenance(config, load_images(SOURCE).train.fingerprint)
    print(f"written to {write('jpegs', {'kilobytes': kilobytes, 'results': found, **told})}")


if __name__ == "__main__":
    main()

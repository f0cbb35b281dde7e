"""How many images a second does `nearfar fit` train on, and what would the same model, views and loss reach in a bare loop?

    python benchmarks/throughput.py [--batches 512,1024] [--steps 300] [--profile]

SimCLR, ResNet-18 with the CIFAR stem, bf16, channels-last, two views made on the GPU, SGD. `fit` is the whole thing: keyed order and
views, metrics, checkpoints, guards. The bare loop keeps only what has to be there, as one CUDA graph: the batch drawn on the GPU,
views, forward, backward, optimizer. Both are timed in the same process, in turns, after warming up. Images are noise of CIFAR-10's
size: the time does not depend on what they show. Writes benchmarks/results/throughput.json.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write
from provenance import GENERATED, agrees, provenance

import nearfar
from nearfar.core import RandomKey, Rows, TrainConfig
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.train.compile_encoders import compile_encoders
from nearfar.train.optimizers import make_optimizer
from nearfar.train.session import build_net
from nearfar.train.training_loop import Hook

IMAGES, WARM, ROUNDS = 50_000, 40, 3
RUN: dict[str, Any] = {"encoder": "resnet18", "optimizer": "sgd", "lr": 0.1, "weight_decay": 5e-4, "precision": "bf16"}


class Clock(Hook):
    """Seconds from step `WARM` to the last."""

    def step(self, session, values, z):
        if session.step in (WARM, session.steps):
            torch.cuda.synchronize()
            now = time.perf_counter()
            self.began, self.seconds = (now, 0.0) if session.step == WARM else (self.began, now - self.began)


def by_fit(images: np.ndarray, batch: int, steps: int, compiled: bool) -> float:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = RUN | {"batch_size": batch, "steps": steps, "compile": compiled, "save_every": steps}
        nearfar.fit("simclr", data=images, out=Path(folder) / "run", hooks=[clock], **settings)
    return batch * (steps - WARM) / clock.seconds


def by_bare_loop(images: np.ndarray, batch: int, steps: int, compiled: bool, graph: bool = True) -> float:
    """The same step as one CUDA graph, data and optimizer included, and nothing else."""
    recipe, config, rng_key = SimCLR(), TrainConfig(**RUN), RandomKey(0)
    sizes = {"n": len(images), "channels": 3, "size": 32, "mean": [0.5] * 3, "std": [0.25] * 3, "classes": 0}
    net = build_net(recipe, config, sizes).cuda().to(memory_format=torch.channels_last).train()  # pyright: ignore
    if compiled:
        compile_encoders(net)
    optimizer, similarity = make_optimizer(net, recipe.trains, config), recipe.similarity(net)
    held = torch.from_numpy(images).cuda()
    ids, slots = torch.zeros(batch, dtype=torch.long, device="cuda"), torch.arange(batch, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        x = similarity.view({"image": held[ids]}, Rows(ids, slots, None), rng_key)  # type: ignore[arg-type]
        with torch.autocast("cuda", torch.bfloat16):
            z = recipe.embed(net, x, rng_key)
        loss = recipe.objective(net, {k: v.float() for k, v in z.items()}, rng_key)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        optimizer.step()

    recorded = torch.cuda.CUDAGraph()
    began = 0.0
    for t in range(steps):
        if t == WARM // 2 and graph:
            with torch.cuda.graph(recorded):
                step()
        if t == WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
        ids.random_(len(held))
        slots.add_(batch)
        recorded.replay() if graph and t >= WARM // 2 else step()
    torch.cuda.synchronize()
    return batch * (steps - WARM) / (time.perf_counter() - began)


def profile(images: np.ndarray, batch: int, compiled: bool) -> None:
    with torch.profiler.profile() as found:
        by_bare_loop(images, batch, WARM + 20, compiled, graph=False)
    print(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=40, max_name_column_width=70))


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a measurement."""
    return {**RUN, "batches": args.batches, "steps": args.steps, "rounds": args.rounds}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has the default settings of this script."""
    return agrees(row, settings(parser().parse_args([])))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", default="512,1024")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true", help="where the time of the bare loop goes")
    return parser


def main() -> None:
    args = parser().parse_args()
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    rows = []
    for batch, compiled in itertools.product(map(int, args.batches.split(",")), (False, True)):
        if args.profile:
            profile(images, batch, compiled)
        rates = [
            (by_fit(images, batch, args.steps, compiled), by_bare_loop(images, batch, args.steps, compiled)) for _ in range(args.rounds)
        ]
        fit, bare = (max(r) for r in zip(*rates, strict=True))
        rows.append({"batch": batch, "compile": compiled, "fit": round(fit), "bare": round(bare), "ratio": round(fit / bare, 3)})
        kind = "compiled" if compiled else "eager"
        print(f"batch {batch}, {kind:8}: fit {fit:7.0f} images/s, bare loop {bare:7.0f}, ratio {fit / bare:.3f}", flush=True)
    print(f"written to {write('throughput', {'results': rows, **provenance(settings(args), GENERATED)})}")


if __name__ == "__main__":
    main()

"""What the loop costs beyond the model: one step of `nearfar`'s loop against a bare PyTorch loop with the same model and loss.

    python benchmarks/loop.py

Both train the same SimCLR net (small ConvNet, digits) on the same, precomputed views: views are excluded on both sides. The
difference of the lower quartiles of interleaved rounds (other work on the machine only ever adds) is the loop's own cost: plan,
keys, guard, schedule, hooks. The keyed draws of the views are timed separately.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

import numpy as np
import torch
from common import write
from provenance import Training, agrees, provenance, training_of

from nearfar import recipes
from nearfar.core import RandomKey, RuntimeConfig, Similarity
from nearfar.data import load_images
from nearfar.evaluate.training_hooks import CollapseWatch
from nearfar.train.hooks import MetricsHook
from nearfar.train.optimizers import make_optimizer
from nearfar.train.session import TrainingSession, build_net
from nearfar.train.training_loop import train

BATCH, STEPS, ROUNDS = 4, 100, 25
SETTINGS = {"preset": "tiny", "batch_size": BATCH, "steps": STEPS, "rounds": ROUNDS}


class Ready(Similarity):
    """Views computed beforehand."""

    def __init__(self, views: dict[str, torch.Tensor]):
        self.views = views

    def count(self, data: Any) -> int:
        return len(data)

    def read(self, data, rows, rng_key):
        return None

    def view(self, raw, rows, rng_key):
        return dict(self.views)


def session_of(data, views) -> TrainingSession:
    recipe, config = recipes.load_method("simclr").tiny

    class Precomputed(type(recipe)):
        def similarity(self, net):
            return Ready(views)

    from dataclasses import replace

    return TrainingSession(Precomputed(), replace(config, steps=STEPS, batch_size=BATCH), RuntimeConfig(), data, torch.device("cpu"))


def ours(data, views) -> float:
    session = session_of(data, views)
    began = time.perf_counter()
    train(session, [MetricsHook(), CollapseWatch()])
    return (time.perf_counter() - began) / STEPS * 1e3


def bare(data, views) -> float:
    """The loop everybody writes by hand, with the same parts."""
    session = session_of(data, views)
    recipe = session.recipe
    net = build_net(recipe, session.config, data.sizes())
    optimizer = make_optimizer(net, ("",), session.config)
    net.train()
    began = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = recipe.objective(net, recipe.embed(net, views, RandomKey(0)), RandomKey(0))
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - began) / STEPS * 1e3


def alone(f, *args) -> float:
    """Without the garbage collector, whose turn would fall to either side by chance."""
    gc.collect()
    gc.disable()
    try:
        return f(*args)
    finally:
        gc.enable()


def draws(slots: int = 256, numbers: int = 16) -> float:
    rng_key, rows = RandomKey(0)("draws"), torch.from_numpy(np.arange(slots))
    rng_key.uniform(rows, numbers)
    began = time.perf_counter()
    for _ in range(100):
        rng_key.uniform(rows, numbers)
    return (time.perf_counter() - began) * 10


def training() -> Training:
    """Return all settings of the training that is timed."""
    return training_of("simclr", {"batch_size": BATCH, "steps": STEPS}, preset="tiny")


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has today's settings."""
    return agrees(row, SETTINGS, training())


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])


def main() -> None:
    parser().parse_args()
    data = load_images("digits").train.drop_labels()
    images = data.read(np.arange(BATCH)).float() / 255
    views = {"v0": images, "v1": images.flip(3)}
    ours(data, views), bare(data, views)
    pairs = [(alone(ours, data, views), alone(bare, data, views)) for _ in range(ROUNDS)]
    loop, plain = (statistics.quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    own = loop - plain
    print(f"nearfar {loop:.3f} ms a step, bare loop {plain:.3f} ms, the loop's own cost {own:.3f} ms (wanted: under 0.4)")
    print(f"keyed draws, 256 slots x 16 numbers: {draws():.3f} ms")
    path = write("loop", {
        **provenance(SETTINGS, data.fingerprint, training()), "nearfar_ms": loop, "bare_ms": plain, "own_ms": own, "limit_ms": 0.4,
        "draws_256x16_ms": draws(),
    })  # fmt: skip
    print(f"written to {path}")


if __name__ == "__main__":
    main()

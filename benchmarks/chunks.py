"""Batches larger than memory: what a step holds of the GPU's memory, whole and in chunks, up to 16,384 images.

    python benchmarks/chunks.py

SimCLR, ResNet-18 with group normalisation (so that chunks give the gradient of the whole batch), bf16, 32 pixels, noise. The loss of
the third step is shown beside: it is the same however the batch is cut. Writes benchmarks/results/chunks.json.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from common import write
from provenance import GENERATED, agrees, provenance

import nearfar
from nearfar.train.training_loop import Hook

CASES = ((2048, None), (2048, 512), (16_384, 512), (16_384, 2048))
RUN: dict[str, Any] = {"encoder": "resnet18-gn", "norm": "layer", "precision": "bf16", "optimizer": "sgd", "lr": 0.1, "steps": 3}


class Peak(Hook):
    """The most memory that was held, and when steps ended."""

    def __init__(self):
        self.gib, self.loss = 0.0, 0.0
        self.ends: list[float] = []

    def step(self, session, values, z):
        torch.cuda.synchronize()
        self.gib, self.loss = torch.cuda.max_memory_allocated() / 2**30, float(values["loss"])
        self.ends.append(time.perf_counter())


SETTINGS: dict[str, Any] = {**RUN, "cases": CASES}


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has today's settings."""
    return agrees(row, SETTINGS)


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])


def main() -> None:
    parser().parse_args()
    images = np.random.default_rng(0).integers(0, 256, (24_000, 3, 32, 32), dtype=np.uint8)
    rows = []
    for batch, chunk in CASES:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        peak = Peak()
        nearfar.fit("simclr", data=images, batch_size=batch, chunk_size=chunk, hooks=[peak], **RUN)
        row = {"batch": batch, "chunk": chunk, "peak_gib": round(peak.gib, 2), "loss": peak.loss}
        rows.append(row | {"seconds_a_step": round(peak.ends[-1] - peak.ends[-2], 3)})
        print(rows[-1], flush=True)
    print(f"written to {write('chunks', {'results': rows, **provenance(SETTINGS, GENERATED)})}")


if __name__ == "__main__":
    main()

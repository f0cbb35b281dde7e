"""The first 10,000 training and 2,000 test images of CIFAR-10 in one file: enough for claims and choices, small enough for a processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nearfar.data import load_images

COUNTS = {"train": 10_000, "test": 2_000}


def pack(source: str | Path, path: Path) -> Path:
    """What `open_data` takes, made of CIFAR-10's folder; left as it is if it is there."""
    if not path.exists():
        found = load_images(str(source))
        arrays = {}
        for name, part in (("train", found.train), ("test", found.test)):
            assert part is not None
            rows = np.arange(COUNTS[name])
            arrays |= {f"x_{name}": part.read(rows).permute(0, 2, 3, 1).numpy(), f"y_{name}": part.labels[rows]}
        np.savez_compressed(path, **arrays)
    return path

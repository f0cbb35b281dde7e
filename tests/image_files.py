"""Image files written by Pillow, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nearfar.data import Images, load_images


def everything(spec: Any, **options) -> Images:
    return load_images(spec, test_ids=[], **options).train


def save(image: Image.Image, path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def noise(seed: int, width: int = 8, height: int = 8) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def colours(data: Images) -> dict[str, list[int]]:
    """The central pixel of each image, by name."""
    pixels = data.read(range(len(data)))
    return {data.name(i): pixels[i, :, 4, 4].tolist() for i in range(len(data))}

"""Views of an image are alike: the similarity distribution by data transformation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nearfar.core import Key, Rows, Similarity, UsageError
from nearfar.similarity.op import Images, Op


@dataclass(frozen=True)
class Augment(Similarity):
    """One view for each pipeline: {"v0": (n, c, h, w), "v1": ...}, float32 in [0, 1].

    The pipelines may differ, in what they do (BYOL) or in the size of what they return (SwAV's multi-crop). View i
    draws its random numbers from `key("view", i)`, by slot. `data` is anything with `len` and
    `read(ids) -> uint8 (n, c, h, w)`.
    """

    pipelines: tuple[Op, ...]

    def __post_init__(self):
        if not self.pipelines:
            raise UsageError("Augment needs at least one pipeline: one for each view")

    @classmethod
    def repeat(cls, pipeline: Op, views: int = 2) -> Augment:
        """The same pipeline for every view, with other random numbers."""
        return cls((pipeline,) * views)

    def read(self, data: Any, rows: Rows, key: Key) -> dict[str, Tensor]:
        return {"image": data.read(rows.ids)}

    def view(self, raw: dict[str, Tensor], rows: Rows, key: Key) -> dict[str, Tensor]:
        x = unit(raw["image"])
        slots = torch.as_tensor(rows.slots, device=x.device)
        return {f"v{i}": pipeline(x, slots, key("view", i)) for i, pipeline in enumerate(self.pipelines)}


def unit(image: Tensor) -> Images:
    """uint8 images as floats in [0, 1]."""
    if image.dtype != torch.uint8 or image.ndim != 4:
        raise UsageError(f"images must be a uint8 tensor (n, c, h, w), got {image.dtype} of shape {tuple(image.shape)}")
    return image.float().div_(255)

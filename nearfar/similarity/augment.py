"""Views of an image are alike: the similarity distribution by data transformation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nearfar.core import RandomKey, Rows, Similarity, UsageError
from nearfar.similarity.compose import Compose
from nearfar.similarity.geometric_ops import Crop
from nearfar.similarity.image_op import ImageOp, ImageTensor


@dataclass(frozen=True)
class ImageViews(Similarity):
    """One view for each pipeline: {"v0": (n, c, h, w), "v1": ...}, float32 in [0, 1].

    The pipelines may differ, in what they do (BYOL) or in the size of what they return (SwAV's multi-crop). View i
    draws its random numbers from `key("view", i)`, by slot. `data` is anything with `len` and
    `read(ids) -> uint8 (n, c, h, w)`.

    Where the images are files (`data.frames`) and every pipeline begins with a crop, the windows are drawn and cut out
    as the files are read: what is handed over is one uint8 image of the view's own size for each view, whatever the
    size of the files. All that follows the crop runs on the device, as ever.
    """

    pipelines: tuple[ImageOp, ...]

    def __post_init__(self):
        if not self.pipelines:
            raise UsageError("Augment needs at least one pipeline: one for each view")

    @classmethod
    def repeat(cls, pipeline: ImageOp, num_views: int = 2) -> ImageViews:
        """The same pipeline for every view, with other random numbers."""
        return cls((pipeline,) * num_views)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> dict[str, Tensor]:
        frames = data.get_original_sizes(rows.ids) if hasattr(data, "get_original_sizes") else None
        crops = [crop for pipeline in self.pipelines if (crop := get_first_crop(pipeline))]
        if frames is None or len(crops) < len(self.pipelines):
            return {"image": data.read(rows.ids)}
        slots, frames = torch.as_tensor(rows.slots), torch.from_numpy(frames)
        boxes = [crop.draw_boxes(slots, rng_key("view", i)(0), frames) for i, crop in enumerate(crops)]
        views = data.read_crops(rows.ids, torch.stack(boxes, dim=1).numpy(), [crop.size for crop in crops])
        return {f"v{i}": view for i, view in enumerate(views)}

    def view(self, raw: dict[str, Tensor], rows: Rows, rng_key: RandomKey) -> dict[str, Tensor]:
        if "image" in raw:
            images, pipelines = [to_float_images(raw["image"])] * len(self.pipelines), self.pipelines
        else:
            images, pipelines = (
                [to_float_images(raw[f"v{i}"]) for i in range(len(self.pipelines))],
                tuple(map(disable_first_crop, self.pipelines)),
            )
        slots = torch.as_tensor(rows.slots, device=images[0].device)
        return {f"v{i}": pipeline(x, slots, rng_key("view", i)) for i, (pipeline, x) in enumerate(zip(pipelines, images, strict=True))}


def get_first_crop(pipeline: ImageOp) -> Crop | None:
    """The crop that a composition begins with, if it is one of every row."""
    first = pipeline.ops[0] if isinstance(pipeline, Compose) and pipeline.ops else None
    return first if isinstance(first, Crop) and first.prob == 1 else None


def disable_first_crop(pipeline: ImageOp) -> ImageOp:
    """The composition for images that are cropped already: its crop takes all there is, and the keys of the rest stay as they are."""
    crop = get_first_crop(pipeline)
    assert crop is not None
    assert isinstance(pipeline, Compose)
    return Compose(replace(crop, scale=(1.0, 1.0), ratio=(1.0, 1.0)), *pipeline.ops[1:])


def to_float_images(image: Tensor) -> ImageTensor:
    """uint8 images as floats in [0, 1]."""
    if image.dtype != torch.uint8 or image.ndim != 4:
        raise UsageError(f"images must be a uint8 tensor (n, c, h, w), got {image.dtype} of shape {tuple(image.shape)}")
    return image.float().div_(255)

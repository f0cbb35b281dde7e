"""A picture and what is said of it are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views
from nearfar.similarity.augment import ImageViews


@dataclass(frozen=True)
class ImageCaptionPairs(Similarity):
    """{"v0": (n, c, h, w) in [0, 1], "v1": token ids (n, t)}: of each thing one picture and one caption of that picture, drawn by key.

    Things, not images, are drawn: two pictures of one thing are never each other's negatives.
    """

    image_views: ImageViews
    """One view of the picture."""

    def count(self, data: Any) -> int:
        if not hasattr(data, "images_by_object"):
            raise UsageError("this recipe learns from images with captions: give a table with the columns image and caption")
        return len(data.images_by_object)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        picture = data.images_by_object.draw_members(rows.ids, rows.slots, rng_key("picture"))
        caption = data.captions_by_image.draw_members(data.images.ids[picture], rows.slots, rng_key("caption"))
        image = self.image_views.read(data.images, Rows(picture, rows.slots, rows.batch_ids), rng_key)
        return {"image": image, "text": data.captions.read(caption)}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return {"v0": self.image_views.view(raw["image"], rows, rng_key)["v0"], "v1": raw["text"]}

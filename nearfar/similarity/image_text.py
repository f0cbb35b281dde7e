"""Similarity of an image and its captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views
from nearfar.similarity.augment import ImageViews


@dataclass(frozen=True)
class ImageCaptionPairs(Similarity):
    """One image and one caption per object: {"v0": images, "v1": captions}.

    The images are (n, c, h, w) in [0, 1], the captions are token ids (n, t). The random key selects the image
    of the object and the caption of the image. Rows are objects and not images, so two images of one object
    are never negatives of each other.
    """

    image_views: ImageViews
    """Image views; only the first view is used."""

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

"""A picture and what is said of it are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nearfar.core import Key, Raw, Rows, Similarity, UsageError, Views
from nearfar.similarity.augment import Augment


@dataclass(frozen=True)
class Described(Similarity):
    """{"v0": (n, c, h, w) in [0, 1], "v1": token ids (n, t)}: of each thing one picture and one caption of that picture, drawn by key.

    Things, not images, are drawn: two pictures of one thing are never each other's negatives.
    """

    augment: Augment
    """One view of the picture."""

    def count(self, data: Any) -> int:
        if not hasattr(data, "things"):
            raise UsageError("this recipe learns from images with captions: give a table with the columns image and caption")
        return len(data.things)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        picture = data.things.draw(rows.ids, rows.slots, key("picture"))
        caption = data.described.draw(data.images.ids[picture], rows.slots, key("caption"))
        image = self.augment.read(data.images, Rows(picture, rows.slots, rows.batch), key)
        return {"image": image, "text": data.captions.read(caption)}

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return {"v0": self.augment.view(raw["image"], rows, key)["v0"], "v1": raw["text"]}

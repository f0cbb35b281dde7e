"""Pictures with what is said of them: images, each with one caption or several, behind the interface of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.data.common.dataset import Ids, as_index_array
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.splits import Splits, draw_test_ids, split_train_test
from nearfar.data.common.text_rows import build_texts
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.images.dataset import Images
from nearfar.data.text.dataset import Texts


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Members of groups, end to end: those of group g are `members[starts[g] : starts[g + 1]]`."""

    members: Int64[np.ndarray, " m"]
    starts: Int64[np.ndarray, " groups_and_one"]

    @classmethod
    def from_group_ids(cls, group_ids: Int64[np.ndarray, " m"], group_count: int) -> GroupedRows:
        """From the group of each member; -1 is in none. Members keep their order."""
        inside = np.flatnonzero(group_ids >= 0)
        counts = np.bincount(group_ids[inside], minlength=group_count)
        return cls(inside[np.argsort(group_ids[inside], kind="stable")], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def get_members(self, group: int) -> Int64[np.ndarray, " k"]:
        return self.members[self.starts[group] : self.starts[group + 1]]

    def draw_members(self, groups: Int64[np.ndarray, " n"], slots: Int64[np.ndarray, " n"], rng_key: RandomKey) -> Int64[np.ndarray, " n"]:
        """One member of each of these groups, all equally likely, by key and slot."""
        first, count = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        return self.members[first + (rng_key.uniform(slots, 1)[:, 0] * count).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class CaptionedImages:
    """Some images of a store with all captions of the source. Subsets share both: nothing is copied.

    A *thing* is what a training step draws: one image, or several pictures of the same thing (an emoji as two vendors draw it).
    Pictures of one thing are never divided between training and test.
    """

    images: Images
    captions: Texts
    """Every caption of the source."""
    captions_by_image: GroupedRows
    """For each row of the images' store, its captions."""
    object_ids: Int64[np.ndarray, " rows"]
    """For each row of the images' store, the number of the thing that it shows."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> Int64[np.ndarray, " n"] | None:
        return self.images.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    @property
    def source(self) -> str:
        return self.images.source

    @property
    def skipped(self) -> tuple[str, ...]:
        return (*self.captions.skipped, *self.images.skipped)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.captions.tokenizer

    @cached_property
    def images_by_object(self) -> GroupedRows:
        """The images of each thing, as positions among these images."""
        _, number = np.unique(self.object_ids[self.images.ids], return_inverse=True)
        return GroupedRows.from_group_ids(number.astype(np.int64), int(number.max(initial=-1)) + 1)

    def get_captions(self, i: int) -> list[str]:
        return self.captions.get_strings(self.captions_by_image.get_members(int(self.images.ids[i])))

    def get_unique_captions(self) -> list[str]:
        """Those of all these images, each text once, in the order of the images."""
        return list(dict.fromkeys(text for i in range(len(self)) for text in self.get_captions(i)))

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        """The pictures."""
        return self.images.read(ids)

    def name(self, i: int) -> str:
        return self.images.name(i)

    def subset(self, ids: Ids) -> CaptionedImages:
        return replace(self, images=self.images.subset(as_index_array(ids)))

    def drop_labels(self) -> CaptionedImages:
        return replace(self, images=self.images.drop_labels())

    def tokenize(self, tokenizer: Tokenizer, max_length: int) -> CaptionedImages:
        return replace(self, captions=self.captions.tokenize(tokenizer, max_length))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images, of the captions and of which belong together. Labels are no part of it."""
        joined = (self.captions_by_image.members, self.captions_by_image.starts, self.object_ids)
        return hash_bytes(self.images.fingerprint.encode(), self.captions.fingerprint.encode(), *(part.tobytes() for part in joined))

    def sizes(self) -> dict[str, Any]:
        """What the image encoder is built from and, under "text", what the text encoder is built from."""
        return self.images.sizes() | {"text": self.captions.sizes()}


def attach_captions(images: Images, captions: Sequence[Sequence[str]]) -> CaptionedImages:
    """Images that lie in memory, and the captions of each."""
    flat = [text for own in captions for text in own]
    owner = np.repeat(np.arange(len(images)), [len(own) for own in captions]).astype(np.int64)
    texts = build_texts({"caption": flat}, images.source)
    return CaptionedImages(images, texts, GroupedRows.from_group_ids(owner, len(images)), np.arange(len(images)))


def as_texts(texts: Sequence[str]) -> Texts:
    """Strings that are texts whatever they look like: where images are taken too, a string may name a file."""
    return build_texts({"caption": list(texts)}, f"list of {len(texts)} texts")


def split_captioned_images(loaded: Splits, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """As `divide`; a test split that is drawn holds one thing in five, with all its pictures."""
    data: CaptionedImages = loaded.train
    if loaded.test is None and stored_test_ids is None:
        if len(data.images_by_object) < 2:
            raise UsageError(f"{data.source} shows {len(data.images_by_object)} thing to learn from; at least 2 are needed")
        chosen = draw_test_ids(len(data.images_by_object), None, RandomKey(seed)("split"))
        stored_test_ids = np.sort(np.concatenate([data.images_by_object.get_members(int(g)) for g in chosen]))
    return split_train_test(loaded, seed, stored_test_ids)

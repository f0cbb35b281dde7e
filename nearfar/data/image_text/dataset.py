"""Dataset of images with one or several captions each.

The dataset has the interface of an image dataset.
"""

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
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.images.dataset import Images
from nearfar.data.text.dataset import Texts
from nearfar.data.text.readers import build_texts


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Members of groups, concatenated in one array.

    The members of group g are `members[starts[g] : starts[g + 1]]`.
    """

    members: Int64[np.ndarray, " m"]
    starts: Int64[np.ndarray, " groups_and_one"]

    @classmethod
    def from_group_ids(cls, group_ids: Int64[np.ndarray, " m"], group_count: int) -> GroupedRows:
        """Build the groups from the group number of each member.

        A member with the number -1 is in no group. Members keep their order.
        """
        inside = np.flatnonzero(group_ids >= 0)
        counts = np.bincount(group_ids[inside], minlength=group_count)
        return cls(inside[np.argsort(group_ids[inside], kind="stable")], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def get_members(self, group: int) -> Int64[np.ndarray, " k"]:
        """Return the members of a group."""
        return self.members[self.starts[group] : self.starts[group + 1]]

    def draw_members(self, groups: Int64[np.ndarray, " n"], slots: Int64[np.ndarray, " n"], rng_key: RandomKey) -> Int64[np.ndarray, " n"]:
        """Draw one member of each of these groups with equal probability.

        Args:
            groups: Group numbers, shape (n,).
            slots: Slots of the random key, one for each draw, shape (n,).
            rng_key: Random key of the draws.

        Returns:
            One member of each group, shape (n,).
        """
        first, count = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        return self.members[first + (rng_key.uniform(slots, 1)[:, 0] * count).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class CaptionedImages:
    """Dataset of images of a store, with all captions of the source.

    Subsets share both: nothing is copied.

    A training step draws objects. An object has one image or several images, such as an emoji drawn by two
    vendors. Images of one object are never divided between training and test.
    """

    images: Images
    captions: Texts
    """All captions of the source."""
    captions_by_image: GroupedRows
    """Captions of each row of the image store."""
    object_ids: Int64[np.ndarray, " rows"]
    """Number of the object that each row of the image store shows."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> Int64[np.ndarray, " n"] | None:
        """Return the labels of the images."""
        return self.images.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        return self.images.classes

    @property
    def source(self) -> str:
        """Return the data source as the user named it."""
        return self.images.source

    @property
    def skipped(self) -> tuple[str, ...]:
        """Return the captions and images that could not be read and were left out."""
        return (*self.captions.skipped, *self.images.skipped)

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the captions."""
        return self.captions.tokenizer

    @cached_property
    def images_by_object(self) -> GroupedRows:
        """Return the images of each object, as positions in this dataset."""
        _, number = np.unique(self.object_ids[self.images.ids], return_inverse=True)
        return GroupedRows.from_group_ids(number.astype(np.int64), int(number.max(initial=-1)) + 1)

    def get_captions(self, i: int) -> list[str]:
        """Return the captions of image i."""
        return self.captions.get_strings(self.captions_by_image.get_members(int(self.images.ids[i])))

    def get_unique_captions(self) -> list[str]:
        """Return the captions of all these images, each text once, in image order."""
        return list(dict.fromkeys(text for i in range(len(self)) for text in self.get_captions(i)))

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        """Return some images as a uint8 tensor of shape (n, c, h, w)."""
        return self.images.read(ids)

    def name(self, i: int) -> str:
        """Return the name of image i."""
        return self.images.name(i)

    def subset(self, ids: Ids) -> CaptionedImages:
        """Return a dataset of these images, selected by position."""
        return replace(self, images=self.images.subset(as_index_array(ids)))

    def drop_labels(self) -> CaptionedImages:
        """Return the same dataset without labels."""
        return replace(self, images=self.images.drop_labels())

    def tokenize(self, tokenizer: Tokenizer, max_length: int) -> CaptionedImages:
        """Return the dataset with token ids of the captions, at most `max_length` each."""
        return replace(self, captions=self.captions.tokenize(tokenizer, max_length))

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the images, the captions and their assignment.

        Labels are not hashed.
        """
        joined = (self.captions_by_image.members, self.captions_by_image.starts, self.object_ids)
        return hash_bytes(self.images.fingerprint.encode(), self.captions.fingerprint.encode(), *(part.tobytes() for part in joined))

    def sizes(self) -> dict[str, Any]:
        """Return the sizes from which recipes and encoders are built.

        The sizes of the text encoder are under "text".
        """
        return self.images.sizes() | {"text": self.captions.sizes()}


def attach_captions(images: Images, captions: Sequence[Sequence[str]]) -> CaptionedImages:
    """Build a dataset from opened images and the captions of each.

    Args:
        images: All images of a store, in its order.
        captions: Captions of each image.
    """
    flat = [text for own in captions for text in own]
    owner = np.repeat(np.arange(len(images)), [len(own) for own in captions]).astype(np.int64)
    texts = build_texts({"caption": flat}, images.source)
    return CaptionedImages(images, texts, GroupedRows.from_group_ids(owner, len(images)), np.arange(len(images)))


def as_texts(texts: Sequence[str]) -> Texts:
    """Return strings as texts, even if they look like file names.

    Where images are accepted too, a string may name a file.
    """
    return build_texts({"caption": list(texts)}, f"list of {len(texts)} texts")


def split_captioned_images(loaded: Splits, seed: int, stored_test_ids: Sequence[int] | np.ndarray | None) -> Splits:
    """Split captioned images into a training and a test split.

    The rules are those of `split_train_test`. A drawn test split holds one object in five, with all its
    images.
    """
    data: CaptionedImages = loaded.train
    if loaded.test is None and stored_test_ids is None:
        if len(data.images_by_object) < 2:
            raise UsageError(f"{data.source} shows {len(data.images_by_object)} object to learn from; at least 2 are needed")
        chosen = draw_test_ids(len(data.images_by_object), None, RandomKey(seed)("split"))
        stored_test_ids = np.sort(np.concatenate([data.images_by_object.get_members(int(g)) for g in chosen]))
    return split_train_test(loaded, seed, stored_test_ids)

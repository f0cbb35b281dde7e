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
from nearfar.core.random_key import Key
from nearfar.data.common.dataset import Ids, positions
from nearfar.data.common.splits import Splits, divide, draw_test_ids
from nearfar.data.common.stores import digest
from nearfar.data.common.text_rows import from_strings
from nearfar.data.common.tokenizer import Tokenizer
from nearfar.data.images.dataset import Images
from nearfar.data.text.dataset import Texts


@dataclass(frozen=True, eq=False)
class Grouped:
    """Members of groups, end to end: those of group g are `members[starts[g] : starts[g + 1]]`."""

    members: Int64[np.ndarray, " m"]
    starts: Int64[np.ndarray, " groups_and_one"]

    @classmethod
    def by(cls, group: Int64[np.ndarray, " m"], groups: int) -> Grouped:
        """From the group of each member; -1 is in none. Members keep their order."""
        inside = np.flatnonzero(group >= 0)
        counts = np.bincount(group[inside], minlength=groups)
        return cls(inside[np.argsort(group[inside], kind="stable")], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, group: int) -> Int64[np.ndarray, " k"]:
        return self.members[self.starts[group] : self.starts[group + 1]]

    def draw(self, groups: Int64[np.ndarray, " n"], slots: Int64[np.ndarray, " n"], key: Key) -> Int64[np.ndarray, " n"]:
        """One member of each of these groups, all equally likely, by key and slot."""
        first, count = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        return self.members[first + (key.uniform(slots, 1)[:, 0] * count).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class Captioned:
    """Some images of a store with all captions of the source. Subsets share both: nothing is copied.

    A *thing* is what a training step draws: one image, or several pictures of the same thing (an emoji as two vendors draw it).
    Pictures of one thing are never divided between training and test.
    """

    images: Images
    captions: Texts
    """Every caption of the source."""
    described: Grouped
    """For each row of the images' store, its captions."""
    thing: Int64[np.ndarray, " rows"]
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
    def things(self) -> Grouped:
        """The images of each thing, as positions among these images."""
        _, number = np.unique(self.thing[self.images.ids], return_inverse=True)
        return Grouped.by(number.astype(np.int64), int(number.max(initial=-1)) + 1)

    def captions_of(self, i: int) -> list[str]:
        return self.captions.texts(self.described.of(int(self.images.ids[i])))

    def every_caption(self) -> list[str]:
        """Those of all these images, each text once, in the order of the images."""
        return list(dict.fromkeys(text for i in range(len(self)) for text in self.captions_of(i)))

    def read(self, ids: Ids) -> UInt8[Tensor, "n c h w"]:
        """The pictures."""
        return self.images.read(ids)

    def name(self, i: int) -> str:
        return self.images.name(i)

    def subset(self, ids: Ids) -> Captioned:
        return replace(self, images=self.images.subset(positions(ids)))

    def unlabelled(self) -> Captioned:
        return replace(self, images=self.images.unlabelled())

    def tokenised(self, tokenizer: Tokenizer, length: int) -> Captioned:
        return replace(self, captions=self.captions.tokenised(tokenizer, length))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images, of the captions and of which belong together. Labels are no part of it."""
        joined = (self.described.members, self.described.starts, self.thing)
        return digest(self.images.fingerprint.encode(), self.captions.fingerprint.encode(), *(part.tobytes() for part in joined))

    def sizes(self) -> dict[str, Any]:
        """What the image encoder is built from and, under "text", what the text encoder is built from."""
        return self.images.sizes() | {"text": self.captions.sizes()}


def with_captions(images: Images, captions: Sequence[Sequence[str]]) -> Captioned:
    """Images that lie in memory, and the captions of each."""
    flat = [text for own in captions for text in own]
    owner = np.repeat(np.arange(len(images)), [len(own) for own in captions]).astype(np.int64)
    texts = from_strings({"caption": flat}, images.source)
    return Captioned(images, texts, Grouped.by(owner, len(images)), np.arange(len(images)))


def as_texts(texts: Sequence[str]) -> Texts:
    """Strings that are texts whatever they look like: where images are taken too, a string may name a file."""
    return from_strings({"caption": list(texts)}, f"list of {len(texts)} texts")


def divide_captioned(found: Splits, seed: int, stored: Sequence[int] | np.ndarray | None) -> Splits:
    """As `divide`; a test split that is drawn holds one thing in five, with all its pictures."""
    data: Captioned = found.train
    if found.test is None and stored is None:
        if len(data.things) < 2:
            raise UsageError(f"{data.source} shows {len(data.things)} thing to learn from; at least 2 are needed")
        chosen = draw_test_ids(len(data.things), None, Key(seed)("split"))
        stored = np.sort(np.concatenate([data.things.of(int(g)) for g in chosen]))
    return divide(found, seed, stored)

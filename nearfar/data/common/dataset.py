"""What images, sounds, texts and graphs have in common: some rows of a store, with labels where there are any."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from nearfar.data.common.image_stores import hash_bytes

logger = logging.getLogger("nearfar")

Ids = np.ndarray | Tensor | Sequence[int]
SamplesT = TypeVar("SamplesT", bound="Samples")


@dataclass(frozen=True, eq=False)
class Samples(ABC):
    """Some rows of a store. Subsets share the store: nothing is copied, and a sample keeps its name.

    A new kind of data says how rows are read and what nets are built from; a field of its own with an entry for each sample is
    named in `by_row`.
    """

    store: Any
    """Everything there is in the source, in its order. It has a `fingerprint` and, for each row, a `name`."""
    ids: Int64[np.ndarray, " n"]
    """Which rows of the store these are."""
    labels: Int64[np.ndarray, " n"] | None = None
    """For each sample the position of its class in `classes`."""
    classes: tuple[str, ...] = ()
    source: str = ""
    """What the user asked for, as text."""
    skipped: tuple[str, ...] = ()
    """What was left out of the source because it could not be read."""

    per_sample_fields: ClassVar[tuple[str, ...]] = ("ids", "labels")
    """Fields with an entry for each sample, or None."""

    @abstractmethod
    def read(self, ids: Ids) -> Any:
        """Some samples, by their position among these, as an encoder takes them."""

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """What a recipe and an encoder are built from."""

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, i: int) -> str:
        """What a person would call this sample: a path relative to the folder, a line of a file, "row 17" of an array."""
        return self.store.name(int(self.ids[i]))

    def subset(self: SamplesT, ids: Ids) -> SamplesT:
        chosen = as_index_array(ids)
        there = {name: values for name in self.per_sample_fields if (values := getattr(self, name)) is not None}
        return replace(self, **{name: values[chosen] for name, values in there.items()})

    def drop_labels(self: SamplesT) -> SamplesT:
        """The same samples without labels, so that a method cannot see them."""
        return replace(self, labels=None, classes=())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the samples and their order. Labels are no part of it: `unlabelled` keeps it."""
        return hash_bytes(self.store.fingerprint.encode(), self.ids.tobytes())


def as_index_array(ids: Ids) -> np.ndarray:
    found = np.asarray(ids)
    return found if found.size else np.zeros(0, dtype=np.int64)


def warn_about_skipped(parts: Iterable[Any]) -> None:
    """Samples that --on-error skip left out: who counts on an order of rows must know."""
    missing = list(dict.fromkeys(name for part in parts for name in getattr(part, "skipped", ())))
    if missing:
        counted = "1 sample" if len(missing) == 1 else f"{len(missing):,} samples"
        logger.warning("%s could not be read: left out, the first: %s", counted, missing[0])

"""Base class of datasets of images, sounds, texts and graphs.

A dataset consists of some rows of a store, with labels if there are any.
"""

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
    """Dataset that consists of some rows of a store.

    Subsets share the store: they copy nothing, and each sample keeps its name.

    A new modality implements `read`, which reads rows, and `sizes`, from which models are built. It lists its
    own fields with an entry for each sample in `per_sample_fields`.
    """

    store: Any
    """All rows of the source, in its order. A store has a `fingerprint`, and a `name` for each row."""
    ids: Int64[np.ndarray, " n"]
    """Rows of the store that belong to this dataset."""
    labels: Int64[np.ndarray, " n"] | None = None
    """Position of each sample's class in `classes`."""
    classes: tuple[str, ...] = ()
    source: str = ""
    """Data source as the user named it."""
    skipped: tuple[str, ...] = ()
    """Parts of the source that could not be read and were left out."""

    per_sample_fields: ClassVar[tuple[str, ...]] = ("ids", "labels")
    """Fields with one entry for each sample, or None."""

    @abstractmethod
    def read(self, ids: Ids) -> Any:
        """Return some samples in the form that an encoder takes.

        Args:
            ids: Positions among the samples of this dataset.
        """

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """Return the sizes from which recipes and encoders are built."""

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, i: int) -> str:
        """Return a readable name of this sample.

        Examples: a path relative to the folder, a line of a file, "row 17" of an array.
        """
        return self.store.name(int(self.ids[i]))

    def subset(self: SamplesT, ids: Ids) -> SamplesT:
        """Return a dataset of these samples, selected by position."""
        chosen = as_index_array(ids)
        there = {name: values for name in self.per_sample_fields if (values := getattr(self, name)) is not None}
        return replace(self, **{name: values[chosen] for name, values in there.items()})

    def drop_labels(self: SamplesT) -> SamplesT:
        """Return the same samples without labels, so that a method cannot see them."""
        return replace(self, labels=None, classes=())

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the samples and their order.

        Labels are not hashed: `drop_labels` keeps the fingerprint.
        """
        return hash_bytes(self.store.fingerprint.encode(), self.ids.tobytes())


def as_index_array(ids: Ids) -> np.ndarray:
    """Return the ids as a NumPy array; an empty one has the type int64."""
    found = np.asarray(ids)
    return found if found.size else np.zeros(0, dtype=np.int64)


def warn_about_skipped(parts: Iterable[Any]) -> None:
    """Log a warning about the samples that --on-error skip left out.

    Users who rely on the order of rows must know about skipped samples.
    """
    missing = list(dict.fromkeys(name for part in parts for name in getattr(part, "skipped", ())))
    if missing:
        counted = "1 sample" if len(missing) == 1 else f"{len(missing):,} samples"
        logger.warning("%s could not be read and will be left out; the first: %s", counted, missing[0])

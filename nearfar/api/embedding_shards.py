"""Shards of data: row ranges that are encoded one after another or by several processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from nearfar.core import UsageError
from nearfar.core.progress import ProgressCallback
from nearfar.data.common.dataset import warn_about_skipped
from nearfar.train.encode import encode_all
from nearfar.train.model import Model
from nearfar.train.model_data import load_model_splits

VectorTable = Float32[np.ndarray, "n d"]


ROWS_PER_BATCH = 512
"""Batch size of the encoder, the same as in `Model.encode`."""


ROWS_PER_SHARD = 8 * ROWS_PER_BATCH
"""Rows of a shard. The last shard of a part may be smaller; a part encoded in one batch is one shard."""


class Shard(NamedTuple):
    """Rows start … stop - 1 of a part."""

    part: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Stretch:
    """The rows of a shard as a dataset for the encoder."""

    data: Any
    start: int
    stop: int

    @property
    def encode_in_one_batch(self) -> bool:
        """Return True if the part must be encoded in one batch."""
        return _needs_one_batch(self.data)

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, ids: np.ndarray) -> Any:
        """Read samples by their position in the shard."""
        return self.data.read(ids + self.start)


def load_parts(model: Model, data: Any, split: str, progress: ProgressCallback | None = None) -> list[Any]:
    """Return the parts to encode: all data in source order, or one split."""
    inputs = model.inputs
    if split == "all":
        parts = list(inputs.load_all(data, model.config, progress))
        warn_about_skipped(parts)
        return [fitting for part in parts for fitting in inputs.adapt(part)]
    splits = load_model_splits(model, data, progress)
    part = {"train": splits.train, "test": splits.test}[split]
    if part is None:
        raise UsageError(f"{splits.train.source} has no {split} split")
    return inputs.adapt(part)


def split_into_shards(parts: list[Any]) -> list[Shard]:
    """Split each part into shards of at most `ROWS_PER_SHARD` rows."""
    steps = [max(len(part), 1) if _needs_one_batch(part) else ROWS_PER_SHARD for part in parts]
    return [
        Shard(i, start, min(start + step, len(part)))
        for i, (part, step) in enumerate(zip(parts, steps, strict=True))
        for start in range(0, len(part), step)
    ]


def _needs_one_batch(part: Any) -> bool:
    """Return True if a part must be encoded in one batch, such as graph nodes.

    Encoding some of its samples costs as much as encoding all. Such a part is one shard.
    """
    return getattr(part, "encode_in_one_batch", False)


def encode_shard(model: Model, parts: list[Any], shard: Shard) -> VectorTable:
    """Return the float32 vectors of a shard, (n, d)."""
    stretch = _Stretch(parts[shard.part], shard.start, shard.stop)
    return encode_all(model.recipe, model.net, stretch, model.device, ROWS_PER_BATCH).numpy()

"""A vector for every sample, in a file.

The data are cut into shards: stretches of one part that begin at a multiple of the batch. Whoever encodes a shard puts the
same rows into the same batches, so that a shard's vectors do not depend on who encodes it; and no more than one shard's
vectors are in memory at a time. The nodes of one graph, which a net sees whole or not at all, are one shard and one batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32

from nearfar.api.evaluate import splits_of
from nearfar.core import UsageError
from nearfar.core.files import atomic_write, writable_target
from nearfar.data.common.dataset import warn_of_skipped
from nearfar.train.encode import encode_all
from nearfar.train.model import Trained

Progress = Callable[[int, int], None]
Engine = Literal["local", "ray"]
Vectors = Float32[np.ndarray, "n d"]
BATCH = 512
"""Rows that go through the net at once: that of `Trained.encode`."""
SHARD = 8 * BATCH
"""Rows of a shard, but for the last one of a part, and for a part that is encoded in one go."""


class Shard(NamedTuple):
    """Rows start … stop - 1 of a part."""

    part: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Stretch:
    """A shard's rows, as an encoder reads them."""

    data: Any
    start: int
    stop: int

    @property
    def together(self) -> bool:
        return _together(self.data)

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, ids: np.ndarray) -> Any:
        return self.data.read(ids + self.start)


def embed(
    trained: Trained,
    data: Any,
    out: str | os.PathLike,
    *,
    split: str = "all",
    engine: Engine = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the representation of every sample: `.npy` (a float32 table) or `.parquet` (name, label, vector). Returns the rows written.

    engine     "local": in this process; "ray": by `workers` processes of a Ray cluster (`nearfar.api.ray_embedding`), the same vectors
    """
    target = writable_target(out)
    if target.suffix not in (".npy", ".parquet"):
        raise UsageError(f"--out {target}: vectors are written as .npy or .parquet")
    if workers is not None and engine != "ray":
        raise UsageError("--workers is for --engine ray: the local engine is one process")
    parts = parts_of(trained, data, split, progress)
    shards = shards_of(parts)
    if engine == "ray":
        from nearfar.api.ray_embedding import Job, embed_shards

        store = embed_shards(Job.of(trained, data, split, target), trained, parts, shards, workers, progress)
        _write(target, parts, shards, map(store.read, range(len(shards))))
        store.remove()
    else:
        _write(target, parts, shards, _encoded(trained, parts, shards, progress))
    return sum(map(len, parts))


def parts_of(trained: Trained, data: Any, split: str, progress: Progress | None = None) -> list[Any]:
    """What is to be embedded: everything, in the order of the source, or one of the splits."""
    inputs = trained.inputs
    if split == "all":
        parts = list(inputs.all(data, trained.run, progress))
        warn_of_skipped(parts)
        return [fitting for part in parts for fitting in inputs.accept(part)]
    splits = splits_of(trained, data, progress)
    part = {"train": splits.train, "test": splits.test}[split]
    if part is None:
        raise UsageError(f"{splits.train.source} has no {split} split")
    return inputs.accept(part)


def shards_of(parts: list[Any]) -> list[Shard]:
    steps = [max(len(part), 1) if _together(part) else SHARD for part in parts]
    return [
        Shard(i, start, min(start + step, len(part)))
        for i, (part, step) in enumerate(zip(parts, steps, strict=True))
        for start in range(0, len(part), step)
    ]


def _together(part: Any) -> bool:
    """Whether to encode some of its samples costs as much as to encode all: such a part is one shard."""
    return getattr(part, "together", False)


def encode_shard(trained: Trained, parts: list[Any], shard: Shard) -> Vectors:
    stretch = _Stretch(parts[shard.part], shard.start, shard.stop)
    return encode_all(trained.recipe, trained.net, stretch, trained.device, BATCH).numpy()


def _encoded(trained: Trained, parts: list[Any], shards: list[Shard], progress: Progress | None) -> Iterator[Vectors]:
    done, total = 0, sum(map(len, parts))
    for shard in shards:
        yield encode_shard(trained, parts, shard)
        done += shard.stop - shard.start
        if progress:
            progress(done, total)


def _write(target: Path, parts: list[Any], shards: list[Shard], tables: Iterable[Vectors]) -> None:
    with atomic_write(target) as f:
        if target.suffix == ".npy":
            _write_numpy(f, sum(map(len, parts)), tables)
        else:
            _write_parquet(f, parts, shards, tables)


def _write_numpy(file: Any, rows: int, tables: Iterable[Vectors]) -> None:
    for i, vectors in enumerate(tables):
        if i == 0:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, vectors.shape[1])}
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(vectors, dtype="<f4").data)


def _unicode(name: str) -> str:
    """File names may be any bytes, and those that are not UTF-8 are halves of characters in Python: written as \\udcff."""
    return name.encode("utf-8", "backslashreplace").decode()


def _write_parquet(file: Any, parts: list[Any], shards: list[Shard], tables: Iterable[Vectors]) -> None:
    """Row groups of at most `SHARD` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labelled = all(part.labels is not None for part in parts)
    writer = None
    for shard, vectors in zip(shards, tables, strict=True):
        part, rows = parts[shard.part], range(shard.start, shard.stop)
        columns: dict[str, Any] = {"name": pa.array([_unicode(part.name(i)) for i in rows], pa.string())}
        if labelled:
            columns["label"] = pa.array([_unicode(part.classes[part.labels[i]]) for i in rows], pa.string())
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table, row_group_size=SHARD)
    if writer:
        writer.close()

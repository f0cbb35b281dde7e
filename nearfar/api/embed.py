"""Vectors of all samples in a file.

The data are split into shards. A shard is a range of rows of one part, and it begins at a multiple of the
batch size. Every process puts the same rows of a shard into the same batches, so the vectors do not depend on
the process that encodes them. Only the vectors of one shard are in memory at a time. The nodes of one graph
form one shard and one batch, because the net must see the whole graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nearfar.api.embedding_shards import ROWS_PER_SHARD, Shard, VectorTable, encode_shard, load_parts, split_into_shards
from nearfar.core import UsageError
from nearfar.core.files import atomic_write, resolve_writable_path
from nearfar.core.progress import ProgressCallback
from nearfar.train.model import Model

EmbeddingEngine = Literal["local", "ray"]


def embed(
    model: Model,
    data: Any,
    out: str | os.PathLike,
    *,
    split: str = "all",
    engine: EmbeddingEngine = "local",
    num_workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> int:
    """Write the vector of every sample and return the number of rows written.

    Args:
        model: a trained model.
        data: as in `nearfar.fit`.
        out: `.npy` (a float32 table) or `.parquet` (name, label, vector).
        split: "train", "test" or "all".
        engine: "local" encodes in this process. "ray" encodes on `num_workers` processes of a Ray cluster
            (`nearfar.api.ray_embedding`). Both give the same vectors.
        num_workers: number of processes of the "ray" engine.
        progress: called with the number of finished rows and the number of all rows.

    Raises:
        UsageError: if `out` has another suffix, or if the split does not exist.
    """
    target = resolve_writable_path(out)
    if target.suffix not in (".npy", ".parquet"):
        raise UsageError(f"--out {target}: the file name must end in .npy or .parquet")
    if num_workers is not None and engine != "ray":
        raise UsageError("--num-workers is for --engine ray: the local engine is one process")
    parts = load_parts(model, data, split, progress)
    shards = split_into_shards(parts)
    if engine == "ray":
        from nearfar.api.ray_embedding import RayJob, embed_shards_with_ray

        store = embed_shards_with_ray(RayJob.from_model(model, data, split, target), model, parts, shards, num_workers, progress)
        _write(target, parts, shards, map(store.read, range(len(shards))))
        store.remove()
    else:
        _write(target, parts, shards, _encoded(model, parts, shards, progress))
    return sum(map(len, parts))


def _encoded(model: Model, parts: list[Any], shards: list[Shard], progress: ProgressCallback | None) -> Iterator[VectorTable]:
    done, total = 0, sum(map(len, parts))
    for shard in shards:
        yield encode_shard(model, parts, shard)
        done += shard.stop - shard.start
        if progress:
            progress(done, total)


def _write(target: Path, parts: list[Any], shards: list[Shard], tables: Iterable[VectorTable]) -> None:
    with atomic_write(target) as f:
        if target.suffix == ".npy":
            _write_numpy(f, sum(map(len, parts)), tables)
        else:
            _write_parquet(f, parts, shards, tables)


def _write_numpy(file: Any, rows: int, tables: Iterable[VectorTable]) -> None:
    for i, vectors in enumerate(tables):
        if i == 0:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, vectors.shape[1])}
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(vectors, dtype="<f4").data)


def _unicode(name: str) -> str:
    """Replace bytes of a file name that are not valid UTF-8.

    Python stores such bytes as lone surrogates. They are written as \\udcff.
    """
    return name.encode("utf-8", "backslashreplace").decode()


def _write_parquet(file: Any, parts: list[Any], shards: list[Shard], tables: Iterable[VectorTable]) -> None:
    """Write row groups of at most `ROWS_PER_SHARD` rows."""
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
        writer.write_table(table, row_group_size=ROWS_PER_SHARD)
    if writer:
        writer.close()

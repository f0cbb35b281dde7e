"""Build an index, and open it again: a folder, a Milvus file or a Milvus server."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.index.distance_metric import checked_metric, prepared
from nearfar.index.engines import choose, faiss_module
from nearfar.index.index_folder import check_new
from nearfar.index.interface import Index
from nearfar.index.local_index import LocalIndex
from nearfar.index.milvus_address import is_store
from nearfar.index.model_identity import Model, model_of
from nearfar.index.row_table import Items
from nearfar.train.model import Trained

log = logging.getLogger("nearfar")


def build(
    vectors: Float[np.ndarray, "n d"] | Float[Tensor, "n d"],
    items: Items | Sequence[str] | None,
    out: str | os.PathLike | None,
    *,
    metric: str = "cosine",
    kind: str = "auto",
    model: Model | Trained | None = None,
    overwrite: bool = False,
) -> Index:
    """An index of vectors; row i of the table is row i of the index.

    items   what the rows are: `Items`, or names; None: "row 0", "row 1", …
    out     the folder to make, or a Milvus store (file.db, http://host:19530, http://host:19530/COLLECTION); None: in memory only
    metric  "cosine", "dot" or "l2"
    kind    "exact", "hnsw" or "ivf"; "auto": by the number of vectors
    model   what made the vectors, so that queries can be encoded by it and by nothing else
    """
    chosen_metric = checked_metric(metric)
    table = prepared(vectors, chosen_metric)
    if not len(table):
        raise UsageError("there are no vectors to build an index of")
    named = Items.given(items, len(table))
    chosen, why = choose(kind, len(table))
    log.log(logging.INFO if kind == "auto" else logging.DEBUG, why)
    made_by = model_of(model) if isinstance(model, Trained) else model
    what: dict[str, Any] = {"kind": chosen, "metric": chosen_metric, "model": made_by, "overwrite": overwrite}
    if out is not None and is_store(out):
        from nearfar.index.milvus_index import MilvusIndex

        return MilvusIndex.create(table, named, os.fspath(out), **what)
    return LocalIndex.create(table, named, out, **what)


def open_index(path_or_store: str | os.PathLike) -> Index:
    """An index that was built before; every byte of a folder is checked first."""
    if is_store(path_or_store):
        from nearfar.index.milvus_index import MilvusIndex

        return MilvusIndex.open(os.fspath(path_or_store))
    return LocalIndex.open(path_or_store)


def check_target(out: str | os.PathLike, overwrite: bool = False) -> None:
    """Refuse what could not be written to or with, before hours of embedding."""
    if is_store(out):
        from nearfar.index.milvus_index import check_new_store

        check_new_store(os.fspath(out), overwrite)
    else:
        faiss_module()
        check_new(out, overwrite)

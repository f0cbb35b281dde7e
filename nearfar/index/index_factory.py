"""Functions that build and open an index: a folder, a Milvus file or a Milvus server."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.index.base_index import Index
from nearfar.index.distance_metric import parse_metric, prepare_vectors
from nearfar.index.faiss_engines import choose_index_type, import_faiss
from nearfar.index.index_folder import check_new_folder
from nearfar.index.local_index import LocalIndex
from nearfar.index.milvus_address import is_milvus_store
from nearfar.index.model_identity import ModelIdentity, identify_model
from nearfar.index.row_table import RowTable
from nearfar.train.model import Model

logger = logging.getLogger("nearfar")


def build_index(
    vectors: Float[np.ndarray, "n d"] | Float[Tensor, "n d"],
    row_table: RowTable | Sequence[str] | None,
    out: str | os.PathLike | None,
    *,
    metric: str = "cosine",
    index_type: str = "auto",
    model: ModelIdentity | Model | None = None,
    overwrite: bool = False,
) -> Index:
    """Build an index of vectors.

    Row i of `vectors` is row i of the index.

    Args:
        vectors: Vectors (n, d).
        row_table: `RowTable` or names of the rows. None names them "row 0", "row 1", …
        out: Folder to create, or a Milvus store (file.db, http://host:19530, http://host:19530/COLLECTION).
            None keeps the index in memory only.
        metric: "cosine", "dot" or "l2".
        index_type: "exact", "hnsw", "ivf", or "auto" to choose by the number of vectors.
        model: Model that encoded the vectors. Queries can then be encoded by this model and by no other.
        overwrite: True to replace an existing index.
    """
    chosen_metric = parse_metric(metric)
    table = prepare_vectors(vectors, chosen_metric)
    if not len(table):
        raise UsageError("there are no vectors to build an index from")
    named = RowTable.resolve(row_table, len(table))
    chosen, why = choose_index_type(index_type, len(table))
    logger.log(logging.INFO if index_type == "auto" else logging.DEBUG, why)
    made_by = identify_model(model) if isinstance(model, Model) else model
    what: dict[str, Any] = {"index_type": chosen, "metric": chosen_metric, "model_identity": made_by, "overwrite": overwrite}
    if out is not None and is_milvus_store(out):
        from nearfar.index.milvus_index import MilvusIndex

        return MilvusIndex.create(table, named, os.fspath(out), **what)
    return LocalIndex.create(table, named, out, **what)


def open_index(path_or_store: str | os.PathLike) -> Index:
    """Open an existing index.

    Every byte of an index folder is verified first.
    """
    if is_milvus_store(path_or_store):
        from nearfar.index.milvus_index import MilvusIndex

        return MilvusIndex.open(os.fspath(path_or_store))
    return LocalIndex.open(path_or_store)


def check_index_target(out: str | os.PathLike, overwrite: bool = False) -> None:
    """Raise an error if an index could not be written to `out`.

    The check runs before hours of encoding. It also raises an error if the required package is missing.
    """
    if is_milvus_store(out):
        from nearfar.index.milvus_index import check_new_store

        check_new_store(os.fspath(out), overwrite)
    else:
        import_faiss()
        check_new_folder(out, overwrite)

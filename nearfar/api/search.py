"""Search from data to hits: build an index with a run, add data, search it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from nearfar.api.load import load
from nearfar.core.errors import NearfarError
from nearfar.core.progress import ProgressCallback
from nearfar.index import Index, build_index, identify_model, open_index
from nearfar.index.index_factory import check_index_target
from nearfar.index.model_identity import check_model_identity
from nearfar.index.queries import read_query
from nearfar.index.run_index import describe_hits, encode_data
from nearfar.train.model import Model
from nearfar.train.user_recipes import TrustedRecipes


def load_index_model(index: Index, run: str | os.PathLike | None = None, *, device: str = "auto", recipe: TrustedRecipes = None) -> Model:
    """Load the model that encoded the vectors of an index.

    Args:
        index: an opened index.
        run: present path of the index's run folder, if it was moved.
        device: device of the model.
        recipe: file or class of a user-defined recipe.

    Raises:
        NearfarError: if the model is unknown, was never saved, is missing, or is not the one of the index.
    """
    identity = index.model_identity
    if identity is None:
        raise NearfarError(f"{index.location} does not record which model produced its vectors: search it with vectors")
    path = identity.locate_run(run, index.location)
    model = load(path, device, recipe)
    check_model_identity(model, identity, path, index.location)
    return model


def index_data(
    run: str | os.PathLike | Model,
    data: Any,
    out: str | os.PathLike | None,
    *,
    metric: str = "cosine",
    index_type: str = "auto",
    overwrite: bool = False,
    device: str = "auto",
    recipe: TrustedRecipes = None,
    on_error: str | None = None,
    progress: ProgressCallback | None = None,
) -> Index:
    """Encode data with a run and build an index of its vectors.

    Args:
        run: Run folder, or a loaded model.
        data: Data as in `nearfar fit --data`.
        out: Folder or store, as in `build_index`.
        metric: Metric, as in `build_index`.
        index_type: Type of the index, as in `build_index`.
        overwrite: True to replace an existing index.
        device: Device of the model.
        recipe: File or class of a custom recipe.
        on_error: "stop" at a broken sample or "skip" it. The default is the setting of the run.
        progress: Function that reports progress.
    """
    if out is not None:
        check_index_target(out, overwrite)
    trained = run if isinstance(run, Model) else load(run, device, recipe)
    vectors, items = encode_data(trained.with_on_error(on_error), data, progress)
    model = identify_model(trained, None if isinstance(run, Model) else run)
    return build_index(vectors, items, out, metric=metric, index_type=index_type, model=model, overwrite=overwrite)


def add_data(index: Index, data: Any, model: Model | None = None, *, progress: ProgressCallback | None = None) -> np.ndarray:
    """Encode data with the model of an index and add the vectors. Returns their rows."""
    vectors, items = encode_data(model or load_index_model(index), data, progress)
    return index.add(vectors.numpy(), items)


def search(
    index: str | os.PathLike | Index,
    query: str | os.PathLike | Float[np.ndarray, " d"] | Float[np.ndarray, "q d"] | Float[Tensor, " d"] | Float[Tensor, "q d"],
    k: int = 10,
    *,
    run: str | os.PathLike | None = None,
    device: str = "auto",
    recipe: TrustedRecipes = None,
) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
    """Search an index for the k nearest rows.

    Args:
        index: Index, or its folder or store.
        query: Text, image or sound file, "row:17", a vector (d,) or a table of vectors (q, d).
        k: Number of rows.
        run: Present path of the index's run folder, if it was moved.
        device: Device of the model.
        recipe: File or class of a custom recipe.

    Returns:
        Rows as dict(score, name, row, label), with text or path where there is one. For a table of vectors, a
        list of such lists.
    """
    opened = index if isinstance(index, Index) else open_index(index)
    if isinstance(query, (str, os.PathLike)):
        vectors = read_query(os.fspath(query), opened, lambda: load_index_model(opened, run, device=device, recipe=recipe)).vectors
        return describe_hits(opened, opened.search(vectors, k))[0]
    table = query.detach().cpu().numpy() if isinstance(query, Tensor) else query
    found = describe_hits(opened, opened.search(np.atleast_2d(table), k))
    return found[0] if table.ndim == 1 else found

"""Functions that index the data of a run, add data and search."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.progress import ProgressCallback
from nearfar.data.common.dataset import warn_about_skipped
from nearfar.index.base_index import Hits, Index
from nearfar.index.index_factory import build_index, check_index_target, open_index
from nearfar.index.model_identity import identify_model
from nearfar.index.queries import read_query
from nearfar.index.row_table import RowTable, build_row_table
from nearfar.train.model import Model, load
from nearfar.train.user_recipes import TrustedRecipes


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
    vectors, items = encode_data(model or index.load_model(), data, progress)
    return index.add(vectors.numpy(), items)


def encode_data(model: Model, data: Any, progress: ProgressCallback | None = None) -> tuple[Float[Tensor, "n d"], RowTable]:
    """Encode all samples of some data.

    Returns:
        Vectors (n, d) and the table of their rows.
    """
    parts = model.inputs.load_all(data, model.config, progress)
    warn_about_skipped(parts)
    return torch.cat([model.encode(part, progress=progress) for part in parts]), build_row_table(parts)


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
        vectors = read_query(os.fspath(query), opened, lambda: opened.load_model(run, device=device, recipe=recipe)).vectors
        return describe_hits(opened, opened.search(vectors, k))[0]
    table = query.detach().cpu().numpy() if isinstance(query, Tensor) else query
    found = describe_hits(opened, opened.search(np.atleast_2d(table), k))
    return found[0] if table.ndim == 1 else found


def describe_hits(index: Index, hits: Hits) -> list[list[dict[str, Any]]]:
    """Describe the hits of each query as a list of dicts."""
    items = index.describe_rows(hits.rows.reshape(-1))
    scored = [{"score": score, **item} for score, item in zip(hits.scores.reshape(-1).tolist(), items, strict=True)]
    k = hits.rows.shape[1]
    return [scored[i * k : (i + 1) * k] for i in range(len(hits.rows))]

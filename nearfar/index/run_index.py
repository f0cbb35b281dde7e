"""From a run to answers, as functions: index what it encodes, add to that, ask it."""

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
    """Encode data with a run and build an index of them.

    run       a run folder, or a run already loaded
    data      what `nearfar fit --data` takes
    out       as for `nearfar.index.index_factory`, like metric and kind
    recipe    the file, or the class, of a recipe that is not nearfar's own
    on_error  "stop" at a broken sample or "skip" it; by default as the run was told
    """
    if out is not None:
        check_index_target(out, overwrite)
    trained = run if isinstance(run, Model) else load(run, device, recipe)
    vectors, items = encode_data(trained.with_on_error(on_error), data, progress)
    model = identify_model(trained, None if isinstance(run, Model) else run)
    return build_index(vectors, items, out, metric=metric, index_type=index_type, model=model, overwrite=overwrite)


def add_data(index: Index, data: Any, model: Model | None = None, *, progress: ProgressCallback | None = None) -> np.ndarray:
    """Encode more data with the model of an index and add them. Returns their rows."""
    vectors, items = encode_data(model or index.load_model(), data, progress)
    return index.add(vectors.numpy(), items)


def encode_data(model: Model, data: Any, progress: ProgressCallback | None = None) -> tuple[Float[Tensor, "n d"], RowTable]:
    """Everything there is in some data, as vectors and items."""
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
    """The k nearest items, each as dict(score, name, row, label) with text or path where there is one; for a table of vectors a list
    of such lists.

    query   a text, an image or a sound file, "row:17", a vector or a table of vectors
    run     where the index's run lies now, if it was moved
    """
    opened = index if isinstance(index, Index) else open_index(index)
    if isinstance(query, (str, os.PathLike)):
        vectors = read_query(os.fspath(query), opened, lambda: opened.load_model(run, device=device, recipe=recipe)).vectors
        return describe_hits(opened, opened.search(vectors, k))[0]
    table = query.detach().cpu().numpy() if isinstance(query, Tensor) else query
    found = describe_hits(opened, opened.search(np.atleast_2d(table), k))
    return found[0] if table.ndim == 1 else found


def describe_hits(index: Index, hits: Hits) -> list[list[dict[str, Any]]]:
    """What was found, for each query, in words."""
    items = index.describe_rows(hits.rows.reshape(-1))
    scored = [{"score": score, **item} for score, item in zip(hits.scores.reshape(-1).tolist(), items, strict=True)]
    k = hits.rows.shape[1]
    return [scored[i * k : (i + 1) * k] for i in range(len(hits.rows))]

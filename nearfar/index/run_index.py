"""From a run to answers, as functions: index what it encodes, add to that, ask it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.data.common.dataset import warn_of_skipped
from nearfar.index.build import build, check_target, open_index
from nearfar.index.interface import Hits, Index
from nearfar.index.model_identity import model_of
from nearfar.index.queries import read_query
from nearfar.index.row_table import Items, items_of
from nearfar.train.model import Trained, load
from nearfar.train.user_recipes import Trusted

Progress = Callable[[int, int], None]


def index_data(
    run: str | os.PathLike | Trained,
    data: Any,
    out: str | os.PathLike | None,
    *,
    metric: str = "cosine",
    kind: str = "auto",
    overwrite: bool = False,
    device: str = "auto",
    recipe: Trusted = None,
    on_error: str | None = None,
    progress: Progress | None = None,
) -> Index:
    """Encode data with a run and build an index of them.

    run       a run folder, or a run already loaded
    data      what `nearfar fit --data` takes
    out       as for `nearfar.index.build`, like metric and kind
    recipe    the file, or the class, of a recipe that is not nearfar's own
    on_error  "stop" at a broken sample or "skip" it; by default as the run was told
    """
    if out is not None:
        check_target(out, overwrite)
    trained = run if isinstance(run, Trained) else load(run, device, recipe)
    vectors, items = encoded(trained.reading(on_error), data, progress)
    model = model_of(trained, None if isinstance(run, Trained) else run)
    return build(vectors, items, out, metric=metric, kind=kind, model=model, overwrite=overwrite)


def add_data(index: Index, data: Any, trained: Trained | None = None, *, progress: Progress | None = None) -> np.ndarray:
    """Encode more data with the model of an index and add them. Returns their rows."""
    vectors, items = encoded(trained or index.trained(), data, progress)
    return index.add(vectors.numpy(), items)


def encoded(trained: Trained, data: Any, progress: Progress | None = None) -> tuple[Float[Tensor, "n d"], Items]:
    """Everything there is in some data, as vectors and items."""
    parts = trained.inputs.all(data, trained.run, progress)
    warn_of_skipped(parts)
    return torch.cat([trained.encode(part, progress=progress) for part in parts]), items_of(parts)


def search(
    index: str | os.PathLike | Index,
    query: str | os.PathLike | Float[np.ndarray, " d"] | Float[np.ndarray, "q d"] | Float[Tensor, " d"] | Float[Tensor, "q d"],
    k: int = 10,
    *,
    run: str | os.PathLike | None = None,
    device: str = "auto",
    recipe: Trusted = None,
) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
    """The k nearest items, each as dict(score, name, row, label) with text or path where there is one; for a table of vectors a list
    of such lists.

    query   a text, an image or a sound file, "row:17", a vector or a table of vectors
    run     where the index's run lies now, if it was moved
    """
    opened = index if isinstance(index, Index) else open_index(index)
    if isinstance(query, (str, os.PathLike)):
        vectors = read_query(os.fspath(query), opened, lambda: opened.trained(run, device=device, recipe=recipe)).vectors
        return answers(opened, opened.search(vectors, k))[0]
    table = query.detach().cpu().numpy() if isinstance(query, Tensor) else query
    found = answers(opened, opened.search(np.atleast_2d(table), k))
    return found[0] if table.ndim == 1 else found


def answers(index: Index, hits: Hits) -> list[list[dict[str, Any]]]:
    """What was found, for each query, in words."""
    items = index.items(hits.rows.reshape(-1))
    scored = [{"score": score, **item} for score, item in zip(hits.scores.reshape(-1).tolist(), items, strict=True)]
    k = hits.rows.shape[1]
    return [scored[i * k : (i + 1) * k] for i in range(len(hits.rows))]

"""Vectors and rows of data, and descriptions of hits."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.progress import ProgressCallback
from nearfar.data.common.dataset import warn_about_skipped
from nearfar.index.base_index import Hits, Index
from nearfar.index.row_table import RowTable, build_row_table
from nearfar.train.model import Model


def encode_data(model: Model, data: Any, progress: ProgressCallback | None = None) -> tuple[Float[Tensor, "n d"], RowTable]:
    """Encode all samples of some data.

    Returns:
        Vectors (n, d) and the table of their rows.
    """
    parts = model.inputs.load_all(data, model.config, progress)
    warn_about_skipped(parts)
    return torch.cat([model.encode(part, progress=progress) for part in parts]), build_row_table(parts)


def describe_hits(index: Index, hits: Hits) -> list[list[dict[str, Any]]]:
    """Describe the hits of each query as a list of dicts."""
    items = index.describe_rows(hits.rows.reshape(-1))
    scored = [{"score": score, **item} for score, item in zip(hits.scores.reshape(-1).tolist(), items, strict=True)]
    k = hits.rows.shape[1]
    return [scored[i * k : (i + 1) * k] for i in range(len(hits.rows))]

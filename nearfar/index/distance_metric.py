"""Metrics of an index, and vectors in the form that makes them fast to compute.

cosine   a·b / (|a| |b|)   larger is nearer; vectors are normalized once, then it equals `dot`
dot      a·b               larger is nearer
l2       |a − b|           smaller is nearer
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor

from nearfar.core.errors import UsageError

Metric = Literal["cosine", "dot", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2")


def parse_metric(name: str) -> Metric:
    """Return the metric of this name. Raises `UsageError` for an unknown name."""
    for metric in METRICS:
        if name == metric:
            return metric
    raise UsageError(f"--metric must be one of {', '.join(METRICS)}; got {name!r}")


def prepare_vectors(vectors: Any, metric: Metric, dim: int | None = None, name: str = "vectors") -> Float32[np.ndarray, "n d"]:
    """Convert vectors to the form in which the index stores them.

    The result is fp32, row after row. Rows have length 1 if the metric is cosine. A zero vector stays zero:
    its similarity to every vector is 0.

    Args:
        vectors: Array or tensor (n, d).
        metric: Metric of the index.
        dim: Required width d, if known.
        name: Name of the vectors in error messages.
    """
    found = vectors.detach().cpu().numpy() if isinstance(vectors, Tensor) else np.asarray(vectors)
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        raise UsageError(f"{name} must be a table (n, d) of numbers; got shape {found.shape} of {found.dtype}")
    if dim is not None and found.shape[1] != dim:
        raise UsageError(f"{name} have {found.shape[1]} values each; the vectors of this index have {dim}")
    found = np.ascontiguousarray(found, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise UsageError(f"{name}: row {bad[0]} has a value that is not a finite number ({bad.size} such rows)")
    return _normalize_rows(found) if metric == "cosine" else found


def _normalize_rows(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Scale rows to length 1.

    Lengths are computed in fp64, because squares of large values would overflow.
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return (vectors / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32)


def convert_to_scores(raw_scores: Float[np.ndarray, "q k"], squared: bool) -> Float32[np.ndarray, "q k"]:
    """Convert the distances or similarities of a library to scores.

    `squared` marks distances without their square root.
    """
    return np.sqrt(np.maximum(raw_scores, 0)).astype(np.float32) if squared else raw_scores.astype(np.float32)

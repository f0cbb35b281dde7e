"""Comparison with other runs of a folder: alignment, uniformity and changed neighbors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64

from nearfar.api.load import load
from nearfar.core import NearfarError, RandomKey
from nearfar.data.common.image_stores import hash_bytes
from nearfar.evaluate import effective_rank, spread
from nearfar.losses import alignment, uniformity
from nearfar.server.cache import ArrayCache
from nearfar.server.collection import Collection
from nearfar.server.neighbors import SearchRequest
from nearfar.train import checkpoint
from nearfar.train.model import Model
from nearfar.train.model_data import draw_test_views, load_model_splits
from nearfar.train.run_folder import RunFolder

MAX_RUNS = 64
"""Largest number of runs of a folder."""
RUN_ALIGNMENT_SAMPLES, GEOMETRY_SAMPLES = 512, 2048
"""Numbers of test samples for the alignment of two views and for the spread."""
COMPARED_POINTS, COMPARED_NEIGHBORS = 4096, 10
"""Number of points whose neighbors are compared between two runs, and number of neighbors."""
GEOMETRY_MEASURES = ("alignment", "uniformity", "effective_rank", "spread")


def find_runs(folder: Path | None) -> dict[str, Path]:
    """Return the runs of a folder by name, in order.

    Names come from the folder, never from a request.
    """
    if folder is None or not folder.is_dir():
        return {}
    found = [path.parent for path in folder.glob("*/config.json") if (path.parent / "checkpoints").is_dir()]
    return {path.name: path for path in sorted(found)[:MAX_RUNS]}


def measure_run(path: Path, device: str) -> dict[str, Any]:
    """Measure alignment and uniformity of a run on its own test split.

    The values are cached in the run folder. If the run cannot be measured, `problem` states the reason.
    """
    try:
        stored_config = RunFolder.open(path).read_config()
        about = {"name": path.name, "recipe": str(stored_config["recipe"]), "seed": stored_config["train_config"]["seed"]}
    except (NearfarError, KeyError, TypeError):
        return {"name": path.name, "problem": "its configuration cannot be read"}
    try:
        found = checkpoint.find_newest_checkpoint(path / "checkpoints")
        if found is None:
            return about | {"problem": "it has no checkpoint yet"}
        cache = ArrayCache(path / "explorer", hash_bytes(json.dumps(found.manifest, sort_keys=True).encode()))
        values = cache.get_or_compute("geometry-sampled", lambda: _measure_geometry(path, device))
    except NearfarError:
        return about | {"problem": "it cannot be measured: its data, or its recipe, are not there"}
    return about | {name: value for name, value in zip(GEOMETRY_MEASURES, values.tolist(), strict=True) if np.isfinite(value)}


def _measure_geometry(path: Path, device: str) -> np.ndarray:
    model = load(path, device)
    splits = load_model_splits(model)
    data = splits.test if splits.test is not None else splits.train
    vectors = model.encode(data.subset(draw_sample_rows(len(data), GEOMETRY_SAMPLES)) if hasattr(data, "subset") else data)
    pair = draw_test_views(model, data, min(RUN_ALIGNMENT_SAMPLES, len(data)))
    aligned = np.nan if pair is None else float(alignment(*model.modality.encode_views(model, pair)))
    return np.array([aligned, float(uniformity(vectors)), effective_rank(vectors), spread(vectors)])


def compute_neighbor_changes(one: Collection, other: Collection, report_progress: Any) -> Float32[np.ndarray, " n"]:
    """Return the share of each point's ten nearest neighbors that the other run lacks.

    The share is NaN for points that were not measured. If there are more than `COMPARED_POINTS` points, a
    random sample is measured.
    """
    rows = np.sort(RandomKey(0)("explorer", "moved").permutation(len(one))[:COMPARED_POINTS])
    k = min(COMPARED_NEIGHBORS, len(one) - 1)
    found = np.full(len(one), np.nan, dtype="<f4")
    for start in range(0, len(rows), 512):
        part = rows[start : start + 512]
        first, second = (_others(c.search([SearchRequest(c.get_vectors(part), k + 1)])[0].rows, part, k) for c in (one, other))
        found[part] = [1 - len(set(a) & set(b)) / k for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        report_progress(min(1.0, (start + 512) / len(rows)))
    return found


def _others(hits: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Return k neighbors of each row without the row itself."""
    order = np.argsort(hits == own[:, None], axis=1, kind="stable")
    return np.take_along_axis(hits, order, 1)[:, :k]


def align_map(points: Float32[np.ndarray, "n 2"], reference: Float32[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n 2"]:
    """Rotate or mirror a map to match another map (orthogonal Procrustes).

    Only real moves of points remain visible then.
    """
    u, _, v = np.linalg.svd(points.T.astype(np.float64) @ reference)
    found = points @ (u @ v)
    return (found / max(float(np.abs(found).max()), 1e-12)).astype(np.float32)


def draw_sample_rows(n: int, count: int) -> Int64[np.ndarray, " m"]:
    """Draw a random sample of n rows, the same for every run.

    The first rows would not be representative if the data are sorted by class.
    """
    return np.sort(RandomKey(0)("explorer", "sample").permutation(n)[:count])


def encode_rows(model: Model, data: Any, rows: Int64[np.ndarray, " m"]) -> Float32[torch.Tensor, "m d"]:
    """Return the vectors of some rows of a part."""
    return model.encode(data.subset(rows)) if hasattr(data, "subset") else model.encode(data)[rows]

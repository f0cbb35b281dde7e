"""Training diagnostics of a run: learning curves, spectrum of its vectors, positive pairs."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from nearfar.api.diagnose import diagnose
from nearfar.evaluate import effective_rank, spectrum, spread
from nearfar.evaluate.input_checks import check_features
from nearfar.losses import uniformity
from nearfar.modalities.media import encode_png
from nearfar.server.collection import Collection, RunCollection
from nearfar.server.explorer.runs import draw_sample_rows, encode_rows
from nearfar.train.model import Model
from nearfar.train.model_data import draw_first_pairs, load_model_splits

DIAGNOSED_SAMPLES = 2048
MAX_CURVE_POINTS = 2000
"""Largest number of points of a learning curve. Longer curves are thinned."""


def read_curves(model: Model | None) -> dict[str, list[list[float]]]:
    """Return all logged numbers by name: pairs of step and value."""
    found: dict[str, list[list[float]]] = {}
    for line in model.metrics if model else []:
        for name, value in line.items():
            if name not in ("step", "time") and isinstance(value, (int, float)) and np.isfinite(value):
                found.setdefault(name, []).append([line["step"], value])
    return {name: points[:: -(-len(points) // MAX_CURVE_POINTS)] for name, points in found.items()}


def compute_diagnostics(collection: Collection) -> dict[str, Any]:
    """Return spectrum, rank and spread of the vectors before and after training."""
    rows = draw_sample_rows(len(collection), DIAGNOSED_SAMPLES)
    found = {"trained": torch.from_numpy(collection.get_vectors(collection.rows[rows]))}
    if isinstance(collection, RunCollection) and collection.model is not None:
        before = collection.model.build_from_init() or collection.model.build_untrained()
        within = np.split(rows, np.searchsorted(rows, collection.part_starts[1:-1]))
        parts = zip(collection.parts, collection.part_starts[:-1], within, strict=True)
        found["before training"] = torch.cat([encode_rows(before, part, ids - start) for part, start, ids in parts if len(ids)])
    return {name: _measure_vectors(check_features(x, name)) for name, x in found.items()}


def _measure_vectors(x: torch.Tensor) -> dict[str, Any]:
    values = spectrum(x)
    used = float((values.square().cumsum(0) / values.square().sum().clamp_min(1e-12) < 0.99).sum() + 1)
    return {
        "spectrum": [round(v, 7) for v in values.tolist()],
        "effective rank": effective_rank(x),
        "directions with 99% of the variance": used,
        "spread": spread(x),
        "uniformity": float(uniformity(x)),
        "width": x.shape[1],
    }


def list_findings(model: Model) -> list[dict[str, Any]]:
    """Return the findings of `nearfar diagnose`."""
    return [{"name": f.name, "says": f.description, "tries": f.remedies} for f in diagnose(model).findings]


def render_training_views(model: Model) -> list[list[dict[str, str]]]:
    """Return positive pairs of the first training step, each as a list of images or texts."""
    train = load_model_splits(model).train
    pair = draw_first_pairs(model, train if model.recipe.uses_labels else train.drop_labels())
    if pair is None:
        return []
    shown = model.modality.render_views(model, pair)
    return [[_render_view(a), _render_view(b)] for a, b in zip(*shown, strict=True)]


def _render_view(shown: Any) -> dict[str, str]:
    """Render an image, a text, or an object with a `picture` or a `text`."""
    picture = shown if isinstance(shown, torch.Tensor) else getattr(shown, "picture", None)
    if picture is None:
        return {"text": str(getattr(shown, "text", shown))}
    pixels = (picture.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return {"picture": f"data:image/png;base64,{base64.b64encode(encode_png(pixels)).decode()}"}

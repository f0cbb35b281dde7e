"""A run's inner life: learning curves, the spectrum of its vectors, what it saw as alike."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from nearfar.api.diagnose import diagnose
from nearfar.api.evaluate import pairs_of, splits_of
from nearfar.evaluate import effective_rank, spectrum, spread
from nearfar.evaluate.input_checks import as_features
from nearfar.losses import uniformity
from nearfar.modalities import kind_of
from nearfar.server.collection import Collection, RunCollection, png
from nearfar.server.explorer.runs import encoded, sampled
from nearfar.train.model import Trained

SAMPLES = 2048
MOST_POINTS = 2000
"""Points of a learning curve; longer ones are thinned."""


def curves(trained: Trained | None) -> dict[str, list[list[float]]]:
    """Everything that was logged, by name: pairs of step and value."""
    found: dict[str, list[list[float]]] = {}
    for line in trained.metrics if trained else []:
        for name, value in line.items():
            if name not in ("step", "time") and isinstance(value, (int, float)) and np.isfinite(value):
                found.setdefault(name, []).append([line["step"], value])
    return {name: points[:: -(-len(points) // MOST_POINTS)] for name, points in found.items()}


def diagnostics(collection: Collection) -> dict[str, Any]:
    """Spectrum, rank and spread of the vectors, beside those of the same net before training."""
    rows = sampled(len(collection), SAMPLES)
    found = {"trained": torch.from_numpy(collection.vectors(collection.rows[rows]))}
    if isinstance(collection, RunCollection) and collection.trained is not None:
        before = collection.trained.began() or collection.trained.untrained()
        within = np.split(rows, np.searchsorted(rows, collection.starts[1:-1]))
        parts = zip(collection.parts, collection.starts[:-1], within, strict=True)
        found["before training"] = torch.cat([encoded(before, part, ids - start) for part, start, ids in parts if len(ids)])
    return {name: _described(as_features(x, name)) for name, x in found.items()}


def _described(x: torch.Tensor) -> dict[str, Any]:
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


def findings(trained: Trained) -> list[dict[str, Any]]:
    """What `nearfar diagnose` says of the run."""
    return [{"name": f.name, "says": f.says, "tries": f.tries} for f in diagnose(trained).findings]


def views(trained: Trained) -> list[list[dict[str, str]]]:
    """Positive pairs of the training's first step: each a list of views, as a picture or as text."""
    train = splits_of(trained).train
    pair = pairs_of(trained, train if trained.recipe.uses_labels else train.unlabelled())
    if pair is None:
        return []
    shown = kind_of(trained.recipe).shown_pair(trained, pair)
    return [[_view(a), _view(b)] for a, b in zip(*shown, strict=True)]


def _view(shown: Any) -> dict[str, str]:
    """A picture, a text, or what a kind makes of a view: something with a `picture` or with a `text`."""
    picture = shown if isinstance(shown, torch.Tensor) else getattr(shown, "picture", None)
    if picture is None:
        return {"text": str(getattr(shown, "text", shown))}
    pixels = (picture.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return {"picture": f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"}

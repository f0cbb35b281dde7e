"""Two-dimensional maps of features, to be looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.evaluate.input_checks import TestX, check_features, require_finite

MAX_PROJECTED_POINTS = 2000
"""More points than this cost minutes and only hide each other."""


@dataclass(frozen=True)
class Projection2D:
    """Points in the plane; `index` says which rows of the features they are."""

    points: Float[np.ndarray, "n 2"]
    rows: Int[np.ndarray, " n"]
    method: str


def project_to_2d(features: TestX, method: str = "tsne", *, rng_key: RandomKey, max_points: int = MAX_PROJECTED_POINTS) -> Projection2D:
    """A map ("tsne" or "pca") of at most `limit` rows, drawn by `key`, which also seeds t-SNE.

    t-SNE needs more than three points; fewer are shown by PCA.
    """
    if method not in ("tsne", "pca"):
        raise UsageError(f"unknown map '{method}': choose tsne or pca")
    rows = check_features(features)
    index = np.sort(rng_key("map", "rows").permutation(len(rows))[:max_points])
    chosen = rows[torch.from_numpy(index).to(rows.device)]
    if method == "pca" or len(index) <= 3:
        return Projection2D(compute_principal_components(chosen, 2).cpu().numpy(), index, "PCA")
    return Projection2D(_compute_tsne(chosen, rng_key("map", "tsne")), index, "t-SNE")


def compute_principal_components(x: Float[Tensor, "n d"], count: int) -> Float[Tensor, "n k"]:
    """Coordinates along the `count` directions of largest variance; each sign is chosen so that its largest loading is positive."""
    require_finite(x, "features")
    centred = x - x.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    coordinates = centred @ (directions * largest.sign()).T
    return torch.nn.functional.pad(coordinates, (0, count - coordinates.shape[1]))


def _compute_tsne(x: Tensor, rng_key: RandomKey) -> np.ndarray:
    from sklearn.manifold import TSNE  # importing it takes a second, which only a map should cost

    reduced = compute_principal_components(x, min(50, x.shape[1])).cpu().numpy()
    # Two columns of spread 1e-4, as scikit-learn's own PCA initialisation, but defined for features of any width.
    start = compute_principal_components(x, 2).cpu().numpy()
    start = (start / max(float(start[:, 0].std()), 1e-12) * 1e-4).astype(np.float32)
    perplexity = min(30.0, (len(reduced) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init=start, learning_rate="auto", random_state=rng_key.hash_value % 2**32)  # pyright: ignore[reportArgumentType]
    return tsne.fit_transform(reduced).astype(np.float32)

"""Two-dimensional maps of features for inspection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.evaluate.input_checks import TestX, check_features, require_finite

MAX_PROJECTED_POINTS = 2000
"""Maximum number of points. More points take minutes and only hide each other."""


@dataclass(frozen=True)
class Projection2D:
    """Points in the plane. `rows` are the indices of their rows in the features."""

    points: Float[np.ndarray, "n 2"]
    rows: Int[np.ndarray, " n"]
    method: str


def project_to_2d(features: TestX, method: str = "tsne", *, rng_key: RandomKey, max_points: int = MAX_PROJECTED_POINTS) -> Projection2D:
    """Project at most `max_points` rows to the plane by t-SNE or PCA.

    t-SNE needs more than three points. PCA projects fewer points.

    Args:
        features: Features (n, d).
        method: "tsne" or "pca".
        rng_key: Random key that draws the rows and seeds t-SNE.
        max_points: Maximum number of rows.
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
    """Compute the coordinates along the `count` directions of largest variance.

    The sign of each direction is chosen so that its largest loading is positive.
    """
    require_finite(x, "features")
    centred = x - x.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    coordinates = centred @ (directions * largest.sign()).T
    return torch.nn.functional.pad(coordinates, (0, count - coordinates.shape[1]))


def _compute_tsne(x: Tensor, rng_key: RandomKey) -> np.ndarray:
    from sklearn.manifold import TSNE  # the import takes a second, so only maps pay for it

    reduced = compute_principal_components(x, min(50, x.shape[1])).cpu().numpy()
    # Two columns of spread 1e-4, as in scikit-learn's PCA initialization, but for features of any width.
    start = compute_principal_components(x, 2).cpu().numpy()
    start = (start / max(float(start[:, 0].std()), 1e-12) * 1e-4).astype(np.float32)
    perplexity = min(30.0, (len(reduced) - 1) / 3)
    tsne = TSNE(
        perplexity=perplexity,
        init=start,  # pyright: ignore[reportArgumentType]
        learning_rate="auto",
        random_state=rng_key.hash_value % 2**32,
    )
    return tsne.fit_transform(reduced).astype(np.float32)

"""Whitening MSE: positives agree after the batch has been made white, which leaves no room to collapse."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_rows, check_rows_of_same_shape
from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.scores import Number, cosine


def whiten(z: Float[Tensor, "n d"], shrinkage: Number = 1e-3) -> Float[Tensor, "n d"]:
    r"""\(L^{-1}(z - \bar z)\) with \(L L^\top = (1 - \epsilon)\,\Sigma + \epsilon I\): mean 0 and, for eps = 0, covariance I.

    The shrinkage keeps the matrix positive definite: \(\Sigma\) is only semi-definite, and singular when there
    are no more rows than features.

    Requirements: two rows at least; without shrinkage more rows than features, and none of these linearly dependent.
    """
    check_rows(z=z)
    n, d = z.shape
    if n < 2:
        raise UsageError(f"whiten: a covariance needs at least 2 rows, got {n}")
    if not 0 <= shrinkage <= 1:
        raise UsageError(f"whiten: shrinkage must lie between 0 and 1, got {shrinkage}")
    if shrinkage == 0 and n <= d:
        raise UsageError(f"whiten: {n} rows of {d} features have a singular covariance: use more than {d} rows, or shrinkage > 0")
    z = z.float() if z.dtype in (torch.bfloat16, torch.float16) else z
    centred = z - z.mean(0)
    covariance = centred.T @ centred / (n - 1)
    # The last term is rounding error's size: without it an eps that is small against large variances would be lost.
    shift = shrinkage + 8 * torch.finfo(z.dtype).eps * covariance.detach().trace()
    try:
        factor = torch.linalg.cholesky((1 - shrinkage) * covariance + shift * torch.eye(d, dtype=z.dtype, device=z.device))
    except torch.linalg.LinAlgError as e:  # pyright: ignore[reportPrivateImportUsage]
        if not covariance.isfinite().all():
            return centred * torch.nan
        raise UsageError("whiten: features are constant or linearly dependent, their covariance is singular: use shrinkage > 0") from e
    return torch.linalg.solve_triangular(factor, centred.T, upper=False).T


def w_mse(
    z0: Float[Tensor, "n d"],
    z1: Float[Tensor, "n d"],
    slots: Int[Tensor, " n"],
    rng_key: RandomKey,
    subbatch_size: int | None = None,
    num_repeats: int = 1,
    shrinkage: Number = 1e-3,
    distance: Literal["cosine", "euclidean"] = "cosine",
) -> Float[Tensor, ""]:
    r"""\[ \mathcal L = \frac1n \sum_i \operatorname{dist}(w_i^0, w_i^1), \qquad w = \text{whiten}(z) \]

    with dist \(2 - 2 \cos\) or the squared distance. Each view is whitened by itself, in sub-batches of about `size`
    rows (all of them if None) that are drawn anew in each of `rounds`, whose losses are averaged.

    Which rows share a sub-batch depends on the key and on the rows' `slots`, not on their order.

    Requirements: sub-batches of at least 2 rows; of more than d, 2 d in the paper, for whitening to mean much.

    Relations: MSE alone collapses; here white vectors cannot. `barlow` asks softly for what whitening enforces.

    Reference: Ermolov et al., Whitening for Self-Supervised Representation Learning, ICML 2021.
    """
    check_rows_of_same_shape(z0=z0, z1=z1)
    n = len(z0)
    if subbatch_size is not None and subbatch_size < 2:
        raise UsageError(f"w_mse: subbatch_size, the rows of a sub-batch, must be at least 2, got {subbatch_size}")
    parts = 1 if subbatch_size is None else max(1, n // subbatch_size)
    losses = []
    for r in range(num_repeats):
        order = rng_key("whiten", r).bits(slots)[:, 0].argsort(stable=True)
        white = [torch.cat([whiten(z[rows], shrinkage) for rows in order.tensor_split(parts)]) for z in (z0, z1)]
        losses.append(_distance(white[0], white[1], distance).mean())
    return torch.stack(losses).mean()


def _distance(a: Tensor, b: Tensor, distance: str) -> Tensor:
    if distance == "cosine":
        return 2 - 2 * cosine.score_pairs(cosine.prepare_vectors(a), cosine.prepare_vectors(b))
    return (a - b).square().sum(1)

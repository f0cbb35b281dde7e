"""Whitening MSE: positives agree after the batch is whitened, which prevents collapse."""

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
    r"""Whiten a batch of vectors.

    The result is \(L^{-1}(z - \bar z)\) with \(L L^\top = (1 - \epsilon)\,\Sigma + \epsilon I\). It has mean
    0 and, for `shrinkage=0`, covariance I.

    The shrinkage \(\epsilon\) keeps the matrix positive definite. \(\Sigma\) is only semi-definite, and it is
    singular if there are no more rows than features.

    Requirements: at least two rows. Without shrinkage: more rows than features, and linearly independent
    features.
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
    # The last term has the size of the rounding error. Without it, a small shrinkage would be lost
    # next to large variances.
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
    r"""Compute the mean distance of positives after whitening.

    \[ \mathcal L = \frac1n \sum_i \operatorname{dist}(w_i^0, w_i^1), \qquad w = \text{whiten}(z) \]

    dist is \(2 - 2 \cos\) or the squared distance. Each view is whitened separately, in random sub-batches.
    The rows that share a sub-batch depend on the random key and on the rows' `slots`, not on their order.

    Args:
        z0: Embeddings of the first view.
        z1: Embeddings of the second view.
        slots: Slot of each row.
        rng_key: Random key.
        subbatch_size: Approximate number of rows of a sub-batch. None takes all rows.
        num_repeats: Number of random partitions. Their losses are averaged.
        shrinkage: Shrinkage of the covariance, as in `whiten`.
        distance: "cosine" for \(2 - 2 \cos\), "euclidean" for the squared distance.

    Requirements: sub-batches of at least 2 rows. Whitening is meaningful with more than d rows; the paper
    uses 2 d.

    Relations: MSE alone collapses; whitened vectors cannot. `barlow_twins` is a soft version of the
    constraint that whitening enforces.

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

"""Whitening of finished embeddings: a linear map, fitted in closed form.

The whitened embeddings have the same variance in every direction.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core import UsageError

MIN_VARIANCE_RATIO = 1e-10
"""Minimum variance of a direction, relative to the largest. Directions below it are rounding errors of
float32 and carry no information."""


def fit_whitening(x: Float[Tensor, "n d"], num_components: int | None = None) -> tuple[Float[Tensor, " d"], Float[Tensor, "d k"]]:
    r"""Compute the mean and the whitening map of rows.

    The mean is \(\mu\), and the map is \(W = U_k \Lambda_k^{-1/2}\). \(W\) belongs to the k largest
    eigenvalues of the covariance \(\Sigma = U \Lambda U^\top\). Then \((x - \mu) W\) has mean 0 and
    covariance I.

    \(\Sigma\) is only semi-definite: with n <= d rows, or with constant or dependent columns, some
    eigenvalues are 0. Their columns of W are 0, too. If fewer than k directions vary, the last outputs are
    constantly 0, and cosines depend only on the directions that vary.

    The sign of each eigenvector is set so that its largest entry is positive. The same rows therefore always
    give the same W.

    Args:
        x: rows, (n, d), with n >= 2.
        num_components: number k of directions to keep. None keeps all d.

    Returns:
        The mean (d,) and W (d, k), in float32 or more.

    Raises:
        UsageError: if there are fewer than 2 rows, k is not between 1 and d, or x has values that are not
            finite.
    """
    n, d = x.shape
    num_components = d if num_components is None else num_components
    if n < 2:
        raise UsageError(f"whitening: a covariance needs at least 2 rows, got {n}")
    if not 1 <= num_components <= d:
        raise UsageError(f"whitening: k, the directions kept, must lie between 1 and the width {d}, got {num_components}")
    if not torch.isfinite(x).all():
        raise UsageError("whitening: the embeddings hold NaN or infinity")
    mean = x.double().mean(0)
    centred = x.double() - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / (n - 1))
    values, vectors = values.flip(0)[:num_components], vectors.flip(1)[:, :num_components]
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    # A column that is constant up to the rounding of its mean must not become the largest direction.
    floor = torch.maximum(MIN_VARIANCE_RATIO * values[0], (torch.finfo(values.dtype).eps * mean.abs().max()) ** 2 * d)
    scale = torch.where(values > floor, values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt(), 0.0)
    dtype = torch.promote_types(x.dtype, torch.float32)  # bf16 is too coarse for a mean far from 0
    return mean.to(dtype), (vectors * scale).to(dtype)


class Whiten(nn.Module):
    r"""Whitening layer.

    It computes \((x - \mu) W\), the first `num_components` whitened directions. `fit` sets \(\mu\)
    and \(W\). They are buffers and are saved with the net. Before the first `fit`, the layer returns the first
    coordinates unchanged.

    Reference: Su et al., Whitening Sentence Representations for Better Semantics and Faster Retrieval, 2021;
    Huang et al., WhiteningBERT, 2021.
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, dim: int, num_components: int | None = None):
        super().__init__()
        if num_components is not None and not 1 <= num_components <= dim:
            raise UsageError(f"whitening: k, the directions kept, must lie between 1 and the width {dim}, got {num_components}")
        self.dim = dim if num_components is None else num_components
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("weight", torch.eye(dim, self.dim))

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "n d"]) -> None:
        """Fit the mean and the whitening map to the rows of `x`."""
        if x.shape[1] != len(self.mean):
            raise UsageError(f"whitening: built for embeddings of width {len(self.mean)}, got {x.shape[1]}")
        mean, weight = fit_whitening(x, self.dim)
        self.mean.copy_(mean)
        self.weight.copy_(weight)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        return (x - self.mean) @ self.weight

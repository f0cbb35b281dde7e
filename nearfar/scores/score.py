"""Scores of two vectors: cosine, dot product, distances and learned scores.

A larger score always means more similar.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.scores.rowmap import refuse_second_derivative

Number = int | float
Scalar = int | float | Float[Tensor, ""]
"""Number, or a tensor with one element, such as a learned temperature."""

HALF_DTYPES = (torch.bfloat16, torch.float16)
MIN_NORM = 1e-12
"""Smallest norm of a vector with a direction. The cosine of a shorter vector is 0, without gradient."""


@dataclass(frozen=True)
class Score:
    """Score of each pair of rows.

    A score is callable: `cosine(a, b)` is the `(n, m)` table. Functions that take a score also accept any
    function `(n, …), (m, …) -> (n, m)`. A function with learned parameters must be wrapped in a `Score` with
    `parameters`, so that they get gradients.
    """

    table: Callable[..., Tensor]
    """Table function: (n, …), (m, …), *parameters -> (n, m). Each entry depends only on its row and its
    column."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """Function that is applied to the vectors once, before tables are computed."""
    paired: Callable[..., Tensor] | None = None
    """Faster function of the diagonal alone: (n, …), (n, …), *parameters -> (n,)."""
    parameters: tuple[Tensor, ...] = ()
    """Learned tensors that `table` and `paired` get as arguments."""
    linear: bool = False
    """True if score(c a, b) = c score(a, b)."""
    symmetric: bool = False
    """True if score(a, b) = score(b, a)."""
    lowest: Number = -math.inf
    """Lower bound of the score."""
    values_per_pair: int = 1
    """Values in memory per pair during computation: 1 for a matrix product, the hidden width for an MLP."""

    def __call__(self, a: Float[Tensor, "n ..."], b: Float[Tensor, "m ..."]) -> Float[Tensor, "n m"]:
        return self.table(self.prepare_vectors(a), self.prepare_vectors(b), *self.parameters)

    def prepare_vectors(self, x: Tensor) -> Tensor:
        """Prepare vectors for `table`, at least in single precision.

        Half-precision vectors keep their dtype on CUDA if the table is a matrix product.
        """
        if x.dtype not in HALF_DTYPES:
            return x if self.prepare is None else self.prepare(x)
        keep = x.is_cuda and self.is_dot
        if self.prepare is None:
            return x if keep else x.float()
        return self.prepare(x.float()).to(x.dtype if keep else torch.float32)

    def score_pairs(self, a: Float[Tensor, "n ..."], b: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """Score a_i with b_i for prepared vectors, shape (n,).

        Without `paired` the result consists of diagonals of small square tables.
        """
        if self.paired is not None:
            return self.paired(a, b, *self.parameters)
        squares = [self.table(x, y, *self.parameters).diagonal() for x, y in zip(a.split(16), b.split(16), strict=True)]
        return torch.cat(squares)

    @property
    def is_dot(self) -> bool:
        """Return True if the table is a plain matrix product."""
        return self.table is _dot

    @property
    def T(self) -> Score:
        """Return the score with the two arguments exchanged."""
        if self.symmetric:
            return self
        table, paired = self.table, self.paired
        turned = None if paired is None else lambda a, b, *p: paired(b, a, *p)
        return replace(self, table=lambda a, b, *p: table(b, a, *p).T, paired=turned)


def as_score(score: Score | Callable[..., Tensor]) -> Score:
    """Convert a function of two tensors to a `Score`.

    A `Score` is returned unchanged.
    """
    return score if isinstance(score, Score) else Score(score)


def l2_normalize(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    r"""Normalize each vector to unit length, \(x / \lVert x \rVert\).

    A zero vector stays zero and gets no gradient. The result is differentiable once.
    """
    return _Unit.apply(x)


class _Unit(torch.autograd.Function):
    r"""Autograd function of `l2_normalize`.

    With \(u = x / \lVert x \rVert\), the gradient is
    \(\partial L / \partial x = (g - (g^\top u)\, u) / \lVert x \rVert\).
    """

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        # In double precision: in single precision the squares of numbers beyond 1e19 are infinite, and such
        # vectors would become zero.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64).to(x.dtype)
        norm.masked_fill_(norm < MIN_NORM, math.inf)
        u = x / norm
        ctx.save_for_backward(u, norm)
        return u

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:  # type: ignore[override]
        refuse_second_derivative("unit")
        u, norm = ctx.saved_tensors
        along = torch.linalg.vecdot(g, u).unsqueeze(-1)
        return torch.addcmul(g, u, along, value=-1).div_(norm)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


def _dot_paired(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1) if a.dtype not in HALF_DTYPES else (a.float() * b).sum(1)


def _minus_squared_distance(a: Tensor, b: Tensor) -> Tensor:
    # |a|² + |b|² - 2ab loses digits if the vectors are long compared with their differences. Distances do not
    # depend on the origin, so the origin is moved to the mean of the vectors. It needs no gradient.
    origin = _mean_of_finite_rows(b.detach()) if len(b) else b.new_zeros(b.shape[1])
    moved = b - origin
    a, b = moved if a is b else a - origin, moved
    of_b = b.square().sum(1)  # (m,)
    of_a = of_b if a is b else a.square().sum(1)  # (n,)
    return -(of_a[:, None] + of_b - 2 * (a @ b.T)).clamp_min(0)


def _mean_of_finite_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """Return the mean of the finite rows, or 0 without any."""
    mean = x.mean(0)
    if not x.is_cuda and bool(mean.isfinite().all()):  # on CUDA this check would make the host wait
        return mean
    # A row with NaN or infinity in the mean would affect every entry of a table.
    finite = x.sum(1, keepdim=True).isfinite()  # (n, 1)
    return torch.where(finite, x, 0.0).sum(0) / finite.sum().clamp_min(1)


def _minus_squared_distance_paired(a: Tensor, b: Tensor) -> Tensor:
    return -(a - b).square().sum(1)


def _minus_root(minus_squared: Tensor) -> Tensor:
    """Return the negative distance.

    The gradient is 0 if the distance is 0, where the root is not differentiable. NaN stays NaN.
    """
    together = minus_squared == 0
    return torch.where(together, 0.0, -torch.where(together, 1.0, -minus_squared).sqrt())


dot = Score(_dot, paired=_dot_paired, linear=True, symmetric=True)
r"""Dot product \(a^\top b\). It is unbounded and depends on the norms of the vectors."""

cosine = Score(_dot, prepare=l2_normalize, paired=_dot_paired, linear=True, symmetric=True, lowest=-1.0)
r"""Cosine \(a^\top b / (\lVert a \rVert \lVert b \rVert)\), in [-1, 1]. A zero vector scores 0."""

unit_dot = Score(_dot, paired=_dot_paired, linear=True, symmetric=True, lowest=-1.0)
"""Cosine of vectors that already have norm 1. Vectors are neither normalized nor checked."""

squared_euclidean = Score(_minus_squared_distance, paired=_minus_squared_distance_paired, symmetric=True)
r"""Negative squared distance \(-\lVert a - b \rVert^2\), so that larger is nearer."""

euclidean = Score(
    lambda a, b: _minus_root(_minus_squared_distance(a, b)),
    paired=lambda a, b: _minus_root(_minus_squared_distance_paired(a, b)),
    symmetric=True,
)
r"""Negative distance \(-\lVert a - b \rVert\)."""


def bilinear(weight: Float[Tensor, "d e"]) -> Score:
    r"""Return the score \(a^\top W b\) with a learned matrix W, as in CPC and CURL.

    The score is symmetric only if W is symmetric.
    """
    return Score(lambda a, b, w: a @ w @ b.T, paired=lambda a, b, w: (a @ w * b).sum(1), parameters=(weight,), linear=True)


def build_learned_score(module: nn.Module, values_per_pair: int = 1) -> Score:
    """Build a score from a module, such as a discriminator.

    Args:
        module: Module with `forward(a, b) -> (n, m)`. It must give the same values when it is called again
            with the same rows (no dropout, no batch statistics).
        values_per_pair: Number of values that the module holds for each pair. It limits the size of blocks.
    """
    named = dict(module.named_parameters())

    def table(a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(named, parameters, strict=True)), (a, b))

    return Score(table, parameters=tuple(named.values()), values_per_pair=values_per_pair)

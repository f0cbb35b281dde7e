"""How alike two vectors are: cosine, dot product, distances, learned scores. Larger is nearer, always."""

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
"""A number, or a tensor that holds one (a learned temperature)."""

HALF_DTYPES = (torch.bfloat16, torch.float16)
MIN_NORM = 1e-12
"""A vector shorter than this has no direction: its cosine with anything is 0, without gradient."""


@dataclass(frozen=True)
class Score:
    """A score of every row of a against every row of b. Call it: `cosine(a, b)` is the `(n, m)` table.

    Where a callable is asked for a score, any function `(n, …), (m, …) -> (n, m)` will do as well; if it has
    parameters to learn, make a `Score` of it so that their gradients are known.
    """

    table: Callable[..., Tensor]
    """(n, …), (m, …), *parameters -> (n, m); each entry depends on its row and its column alone."""
    prepare: Callable[[Tensor], Tensor] | None = None
    """What is done to every vector once, before tables are made of them."""
    paired: Callable[..., Tensor] | None = None
    """(n, …), (n, …), *parameters -> (n,): the diagonal alone, where there is a shorter way to it."""
    parameters: tuple[Tensor, ...] = ()
    linear: bool = False
    """score(c a, b) = c score(a, b)."""
    symmetric: bool = False
    """score(a, b) = score(b, a)."""
    lowest: Number = -math.inf
    """No score is smaller."""
    values_per_pair: int = 1
    """Numbers held for each pair while a table is made: 1 for a matrix product, the hidden width for an MLP."""

    def __call__(self, a: Float[Tensor, "n ..."], b: Float[Tensor, "m ..."]) -> Float[Tensor, "n m"]:
        return self.table(self.prepare_vectors(a), self.prepare_vectors(b), *self.parameters)

    def prepare_vectors(self, x: Tensor) -> Tensor:
        """Vectors as `table` wants them, in single precision at least; on CUDA, for matrix products, in half where they came so."""
        if x.dtype not in HALF_DTYPES:
            return x if self.prepare is None else self.prepare(x)
        keep = x.is_cuda and self.is_dot
        if self.prepare is None:
            return x if keep else x.float()
        return self.prepare(x.float()).to(x.dtype if keep else torch.float32)

    def score_pairs(self, a: Float[Tensor, "n ..."], b: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """Scores of a_i with b_i, for vectors that are ready. Without a shorter way: diagonals of small square tables."""
        if self.paired is not None:
            return self.paired(a, b, *self.parameters)
        squares = [self.table(x, y, *self.parameters).diagonal() for x, y in zip(a.split(16), b.split(16), strict=True)]
        return torch.cat(squares)

    @property
    def is_dot(self) -> bool:
        """Whether a table is a plain matrix product of the prepared vectors."""
        return self.table is _dot

    @property
    def T(self) -> Score:
        """The same comparison with the two sides exchanged."""
        if self.symmetric:
            return self
        table, paired = self.table, self.paired
        turned = None if paired is None else lambda a, b, *p: paired(b, a, *p)
        return replace(self, table=lambda a, b, *p: table(b, a, *p).T, paired=turned)


def as_score(score: Score | Callable[..., Tensor]) -> Score:
    return score if isinstance(score, Score) else Score(score)


def l2_normalize(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    r"""\(x / \lVert x \rVert\); a zero vector stays zero and gets no gradient. Differentiable once."""
    return _Unit.apply(x)


class _Unit(torch.autograd.Function):
    r"""With \(u = x / \lVert x \rVert\): \(\partial L / \partial x = (g - (g^\top u)\, u) / \lVert x \rVert\)."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        # In double precision: in single, the squares of numbers beyond 1e19 are infinite, and such vectors would pass for zero.
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
    # |a|² + |b|² - 2ab loses digits where the vectors are long against their differences; distances do not
    # depend on the origin, so it is put among the vectors (and, being irrelevant, carries no gradient).
    origin = _mean_of_finite_rows(b.detach()) if len(b) else b.new_zeros(b.shape[1])
    moved = b - origin
    a, b = moved if a is b else a - origin, moved
    of_b = b.square().sum(1)  # (m,)
    of_a = of_b if a is b else a.square().sum(1)  # (n,)
    return -(of_a[:, None] + of_b - 2 * (a @ b.T)).clamp_min(0)


def _mean_of_finite_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """Return the mean of the rows without NaN or infinity; 0 if there are none."""
    mean = x.mean(0)
    if not x.is_cuda and bool(mean.isfinite().all()):  # on CUDA the question would make the host wait
        return mean
    # One broken row in the mean would spread to every entry of a table.
    finite = x.sum(1, keepdim=True).isfinite()  # (n, 1)
    return torch.where(finite, x, 0.0).sum(0) / finite.sum().clamp_min(1)


def _minus_squared_distance_paired(a: Tensor, b: Tensor) -> Tensor:
    return -(a - b).square().sum(1)


def _minus_root(minus_squared: Tensor) -> Tensor:
    """Return minus the distance. Where it is 0 the root has no slope and gets none; NaN stays NaN."""
    together = minus_squared == 0
    return torch.where(together, 0.0, -torch.where(together, 1.0, -minus_squared).sqrt())


dot = Score(_dot, paired=_dot_paired, linear=True, symmetric=True)
r"""\(a^\top b\): unbounded, depends on the lengths."""

cosine = Score(_dot, prepare=l2_normalize, paired=_dot_paired, linear=True, symmetric=True, lowest=-1.0)
r"""\(a^\top b / (\lVert a \rVert \lVert b \rVert)\), in [-1, 1]; a zero vector scores 0."""

unit_dot = Score(_dot, paired=_dot_paired, linear=True, symmetric=True, lowest=-1.0)
"""`cosine` of vectors that are of length 1 already; nothing is normalised, nothing checked."""

squared_euclidean = Score(_minus_squared_distance, paired=_minus_squared_distance_paired, symmetric=True)
r"""\(-\lVert a - b \rVert^2\): minus the squared distance, so that larger is nearer."""

euclidean = Score(
    lambda a, b: _minus_root(_minus_squared_distance(a, b)),
    paired=lambda a, b: _minus_root(_minus_squared_distance_paired(a, b)),
    symmetric=True,
)
r"""\(-\lVert a - b \rVert\): minus the distance."""


def bilinear(weight: Float[Tensor, "d e"]) -> Score:
    r"""\(a^\top W b\) with a learned W (CPC, CURL); not symmetric unless W is."""
    return Score(lambda a, b, w: a @ w @ b.T, paired=lambda a, b, w: (a @ w * b).sum(1), parameters=(weight,), linear=True)


def build_learned_score(module: nn.Module, values_per_pair: int = 1) -> Score:
    """A module with `forward(a, b) -> (n, m)` as a score: a discriminator, a cross-transformer.

    `width`: how many numbers the module holds for each pair, so that blocks of rows can be made small enough.
    The module must give the same values when called again with the same rows (no dropout, no batch statistics).
    """
    named = dict(module.named_parameters())

    def table(a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(module, dict(zip(named, parameters, strict=True)), (a, b))

    return Score(table, parameters=tuple(named.values()), values_per_pair=values_per_pair)

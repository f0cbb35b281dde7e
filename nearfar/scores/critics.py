"""Further scores: kernels and orders with a formula, critics with parameters, and a temperature that is learned.

Larger is nearer, as everywhere; what the literature writes as a distance carries a minus.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core.errors import UsageError
from nearfar.scores.score import Number, Score, build_learned_score, squared_euclidean

manhattan = Score(
    lambda a, b: -torch.cdist(a, b, p=1),
    paired=lambda a, b: -(a - b).abs().sum(1),
    symmetric=True,
)
r"""\(-\lVert a - b \rVert_1\): minus the sum of absolute differences."""


def rbf(kernel_coefficient: Number = 2.0) -> Score:
    r"""The Gaussian potential \(G_t(a, b) = e^{-t \lVert a - b \rVert^2}\), in (0, 1].

    Relations: `uniformity` is the logarithm of its mean over pairs on the sphere.
    """
    _need_positive("rbf", t=kernel_coefficient)
    return Score(
        lambda a, b: (kernel_coefficient * squared_euclidean.table(a, b)).exp(),
        paired=lambda a, b: (kernel_coefficient * squared_euclidean.score_pairs(a, b)).exp(),
        symmetric=True,
        lowest=0.0,
    )


def riesz(exponent: Number = 1.0, softening: Number = 1e-3) -> Score:
    r"""The Riesz potential \(G_s(a, b) = \lVert a - b \rVert^{-s}\), as \((\lVert a - b \rVert^2 + \epsilon^2)^{-s/2}\).

    It is infinite where vectors coincide; the softening \(\epsilon\) makes it large instead.

    Relations: s = 1 in three dimensions is the Coulomb potential of Thomson's problem. The energy of points on a
    sphere, `views(z, score=riesz(s)).neg_sum.mean()` of unit vectors, is least when they are spread evenly.
    """
    _need_positive("riesz", s=exponent, softening=softening)
    potential = lambda minus_squared: (softening**2 - minus_squared).pow(-exponent / 2)
    return Score(
        lambda a, b: potential(squared_euclidean.table(a, b)),
        paired=lambda a, b: potential(squared_euclidean.score_pairs(a, b)),
        symmetric=True,
        lowest=0.0,
    )


def order_embedding(dim: int) -> Score:
    r"""\(-\lVert \max(0, b - a) \rVert^2\): 0 where b lies below a in every coordinate, so that b may be said of a.

    Not symmetric, and transitive where it is 0: hypernyms, entailment, images and their captions. The general
    (b, "animal") lies nearer to the origin than the particular (a, "dog").

    Requirements: coordinates that are not negative, in the paper; `dim` is their number.

    Relations: `bilinear(W)` is the other score here that tells a from b.

    Reference: Vendrov et al., Order-Embeddings of Images and Language, ICLR 2016.
    """
    violation = lambda difference: -difference.clamp_min(0).square().sum(-1)
    return Score(lambda a, b: violation(b - a[:, None]), paired=lambda a, b: violation(b - a), values_per_pair=dim)


class ConcatCritic(nn.Module):
    r"""A discriminator on concatenated vectors, \(S(a, b) = \text{MLP}([a; b])\), with two hidden layers.

    The first layer acts on the two halves apart, \(W [a; b] = W_a a + W_b b\), so that it is computed n + m times
    instead of n m times.

    Requirements: as a score, `critic.score()`; what it scores is no metric, and a strong critic can hide a weak encoder.

    Relations: the statistics network T of MINE, Deep InfoMax and IS-BERT; the fusion network of L3-Net.
    """

    def __init__(self, dim: int, other_dim: int | None = None, hidden_dim: int = 256):
        super().__init__()
        self.of_a = nn.Linear(dim, hidden_dim)
        self.of_b = nn.Linear(other_dim or dim, hidden_dim, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1))
        self.values_per_pair = 2 * hidden_dim

    def forward(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        return self.rest(self.of_a(a)[:, None] + self.of_b(b)).squeeze(-1)

    def as_score(self) -> Score:
        return build_learned_score(self, values_per_pair=self.values_per_pair)


class SeparableCritic(nn.Module):
    r"""Two networks and a dot product, \(S(a, b) = g(a)^\top h(b)\), each with one hidden layer.

    Relations: `pairs(critic.g(a), critic.h(b), score=dot)` is the same table and computes every vector once. Weaker
    than `ConcatCritic` for the same width, but a table costs n + m passes through the networks.
    """

    def __init__(self, dim: int, other_dim: int | None = None, hidden_dim: int = 256, out_dim: int = 128):
        super().__init__()
        self.g = nn.Sequential(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))
        self.h = nn.Sequential(nn.Linear(other_dim or dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))

    def forward(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        return self.g(a) @ self.h(b).T

    def as_score(self) -> Score:
        return build_learned_score(self)


class CrossCritic(nn.Module):
    r"""Two sequences read together: \(S(x, y) = w^\top \text{Transformer}([\text{cls}; x; y])_{\text{cls}}\).

    Shapes: `(n, t, d)` and `(m, u, d)` give `(n, m)`. A token of zeros is padding and is not looked at. Each side
    has a learned vector added to its tokens, by which they are told apart; positions are the encoders' business.

    Requirements: n m passes through the transformer. No dropout: a score gives the same value when computed again.

    Reference: Sun et al., Learning Video Representations using Contrastive Bidirectional Transformer, arXiv:1906.05743.
    """

    def __init__(self, dim: int, heads: int = 4, layers: int = 2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.transformer = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.cls, self.side_x, self.side_y = (nn.Parameter(0.02 * torch.empty(dim).normal_()) for _ in range(3))
        self.out = nn.Linear(dim, 1)

    def forward(self, x: Float[Tensor, "n t d"], y: Float[Tensor, "m u d"]) -> Float[Tensor, "n m"]:
        n, m = len(x), len(y)
        cls = self.cls.expand(n, m, 1, -1)
        left = (x + self.side_x)[:, None].expand(n, m, -1, -1)
        right = (y + self.side_y)[None].expand(n, m, -1, -1)
        empty = [(t == 0).all(-1) for t in (x, y)]
        unseen = torch.cat([empty[0].new_zeros(n, m, 1), empty[0][:, None].expand(n, m, -1), empty[1].expand(n, m, -1)], 2)
        read = self.transformer(torch.cat([cls, left, right], 2).flatten(0, 1), src_key_padding_mask=unseen.flatten(0, 1))
        return self.out(read[:, 0]).view(n, m)

    def as_score(self, num_tokens: int) -> Score:
        """`tokens`: t + u, from which the size of blocks is chosen."""
        return build_learned_score(self, values_per_pair=8 * self.cls.numel() * (num_tokens + 1))


class Temperature(nn.Module):
    r"""A learned temperature, as the logarithm of the scale: calling it gives \(1 / \tau = e^\theta\), always positive.

    `hold` keeps the scale at or below `largest`: it belongs into `Recipe.update`, after the optimizer. (A bound inside
    the forward pass would have no gradient beyond it, and a scale that got there would never come back.)

    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, section 2.5.
    """

    def __init__(self, temperature: Number = 0.07, max_scale: Number = 100.0):
        super().__init__()
        _need_positive("Temperature", temperature=temperature, max_scale=max_scale)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.max_scale = max_scale

    def forward(self) -> Float[Tensor, ""]:
        return self.log_scale.exp()

    @torch.no_grad()
    def clamp_scale(self) -> None:
        self.log_scale.clamp_(max=math.log(self.max_scale))


def _need_positive(where: str, **values: Number) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"{where}: {name} must be greater than 0, got {value}")

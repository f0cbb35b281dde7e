"""Further scores: kernels and orders with a formula, critics with parameters, and a temperature that is learned.

Larger is nearer, as everywhere; what the literature writes as a distance carries a minus.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.core.errors import UsageError
from nearfar.scores.score import Number, Score, learned, squared_euclidean

manhattan = Score(
    lambda a, b: -torch.cdist(a, b, p=1),
    paired=lambda a, b: -(a - b).abs().sum(1),
    symmetric=True,
)
r"""\(-\lVert a - b \rVert_1\): minus the sum of absolute differences."""


def rbf(t: Number = 2.0) -> Score:
    r"""The Gaussian potential \(G_t(a, b) = e^{-t \lVert a - b \rVert^2}\), in (0, 1].

    Relations: `uniformity` is the logarithm of its mean over pairs on the sphere.
    """
    _need_positive("rbf", t=t)
    return Score(
        lambda a, b: (t * squared_euclidean.table(a, b)).exp(),
        paired=lambda a, b: (t * squared_euclidean.of_pairs(a, b)).exp(),
        symmetric=True,
        lowest=0.0,
    )


def riesz(s: Number = 1.0, softening: Number = 1e-3) -> Score:
    r"""The Riesz potential \(G_s(a, b) = \lVert a - b \rVert^{-s}\), as \((\lVert a - b \rVert^2 + \epsilon^2)^{-s/2}\).

    It is infinite where vectors coincide; the softening \(\epsilon\) makes it large instead.

    Relations: s = 1 in three dimensions is the Coulomb potential of Thomson's problem. The energy of points on a
    sphere, `views(z, score=riesz(s)).neg_sum.mean()` of unit vectors, is least when they are spread evenly.
    """
    _need_positive("riesz", s=s, softening=softening)
    potential = lambda minus_squared: (softening**2 - minus_squared).pow(-s / 2)
    return Score(
        lambda a, b: potential(squared_euclidean.table(a, b)),
        paired=lambda a, b: potential(squared_euclidean.of_pairs(a, b)),
        symmetric=True,
        lowest=0.0,
    )


def order(dim: int) -> Score:
    r"""\(-\lVert \max(0, b - a) \rVert^2\): 0 where b lies below a in every coordinate, so that b may be said of a.

    Not symmetric, and transitive where it is 0: hypernyms, entailment, images and their captions. The general
    (b, "animal") lies nearer to the origin than the particular (a, "dog").

    Requirements: coordinates that are not negative, in the paper; `dim` is their number.

    Relations: `bilinear(W)` is the other score here that tells a from b.

    Reference: Vendrov et al., Order-Embeddings of Images and Language, ICLR 2016.
    """
    violation = lambda difference: -difference.clamp_min(0).square().sum(-1)
    return Score(lambda a, b: violation(b - a[:, None]), paired=lambda a, b: violation(b - a), width=dim)


class ConcatCritic(nn.Module):
    r"""A discriminator on concatenated vectors, \(S(a, b) = \text{MLP}([a; b])\), with two hidden layers.

    The first layer acts on the two halves apart, \(W [a; b] = W_a a + W_b b\), so that it is computed n + m times
    instead of n m times.

    Requirements: as a score, `critic.score()`; what it scores is no metric, and a strong critic can hide a weak encoder.

    Relations: the statistics network T of MINE, Deep InfoMax and IS-BERT; the fusion network of L3-Net.
    """

    def __init__(self, dim: int, other: int | None = None, hidden: int = 256):
        super().__init__()
        self.of_a = nn.Linear(dim, hidden)
        self.of_b = nn.Linear(other or dim, hidden, bias=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.width = 2 * hidden

    def forward(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        return self.rest(self.of_a(a)[:, None] + self.of_b(b)).squeeze(-1)

    def score(self) -> Score:
        return learned(self, width=self.width)


class SeparableCritic(nn.Module):
    r"""Two networks and a dot product, \(S(a, b) = g(a)^\top h(b)\), each with one hidden layer.

    Relations: `pairs(critic.g(a), critic.h(b), score=dot)` is the same table and computes every vector once. Weaker
    than `ConcatCritic` for the same width, but a table costs n + m passes through the networks.
    """

    def __init__(self, dim: int, other: int | None = None, hidden: int = 256, out: int = 128):
        super().__init__()
        self.g = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, out))
        self.h = nn.Sequential(nn.Linear(other or dim, hidden), nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        return self.g(a) @ self.h(b).T

    def score(self) -> Score:
        return learned(self)


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

    def score(self, tokens: int) -> Score:
        """`tokens`: t + u, from which the size of blocks is chosen."""
        return learned(self, width=8 * self.cls.numel() * (tokens + 1))


class Temperature(nn.Module):
    r"""A learned temperature, as the logarithm of the scale: calling it gives \(1 / \tau = e^\theta\), always positive.

    `hold` keeps the scale at or below `largest`: it belongs into `Recipe.update`, after the optimizer. (A bound inside
    the forward pass would have no gradient beyond it, and a scale that got there would never come back.)

    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, section 2.5.
    """

    def __init__(self, tau: Number = 0.07, largest: Number = 100.0):
        super().__init__()
        _need_positive("Temperature", tau=tau, largest=largest)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(tau)))
        self.largest = largest

    def forward(self) -> Float[Tensor, ""]:
        return self.log_scale.exp()

    @torch.no_grad()
    def hold(self) -> None:
        self.log_scale.clamp_(max=math.log(self.largest))


def _need_positive(where: str, **values: Number) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"{where}: {name} must be greater than 0, got {value}")

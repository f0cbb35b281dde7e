"""More scores: kernels, order embeddings, learned critics and a learned temperature.

A larger score means more similar, as for all scores. Distances of the literature therefore have a minus sign.
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
r"""Negative Manhattan distance \(-\lVert a - b \rVert_1\), the sum of absolute differences."""


def rbf(kernel_coefficient: Number = 2.0) -> Score:
    r"""Return the Gaussian potential \(G_t(a, b) = e^{-t \lVert a - b \rVert^2}\) as a score.

    Values lie in (0, 1]. `kernel_coefficient` is t.

    Relations: `uniformity` is the logarithm of the mean of this score over pairs on the sphere.
    """
    _need_positive("rbf", t=kernel_coefficient)
    return Score(
        lambda a, b: (kernel_coefficient * squared_euclidean.table(a, b)).exp(),
        paired=lambda a, b: (kernel_coefficient * squared_euclidean.score_pairs(a, b)).exp(),
        symmetric=True,
        lowest=0.0,
    )


def riesz(exponent: Number = 1.0, softening: Number = 1e-3) -> Score:
    r"""Return the Riesz potential \(G_s(a, b) = \lVert a - b \rVert^{-s}\) as a score.

    It is computed as \((\lVert a - b \rVert^2 + \epsilon^2)^{-s/2}\). The exact potential is infinite where
    vectors coincide. The softening \(\epsilon\) makes it large and finite. `exponent` is s and `softening` is
    \(\epsilon\).

    Relations: s = 1 in three dimensions is the Coulomb potential of Thomson's problem. The energy of points
    on a sphere is `Scores.from_views(z, score=riesz(s)).neg_sum.mean()` of unit vectors. The energy is
    smallest if the points are spread evenly.
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
    r"""Return the order-embedding score \(-\lVert \max(0, b - a) \rVert^2\).

    The score is 0 if b is at most a in every coordinate, which means that b holds for a. The score is not
    symmetric. The relation "score is 0" is transitive. Examples are hypernyms, entailment, and images and
    their captions. The general term (b, "animal") is closer to the origin than the specific term (a, "dog").

    Requirements: The paper uses coordinates that are not negative. `dim` is the number of coordinates.

    Relations: `bilinear(W)` is also a score that distinguishes a from b.

    Reference: Vendrov et al., Order-Embeddings of Images and Language, ICLR 2016.
    """
    violation = lambda difference: -difference.clamp_min(0).square().sum(-1)
    return Score(lambda a, b: violation(b - a[:, None]), paired=lambda a, b: violation(b - a), values_per_pair=dim)


class ConcatCritic(nn.Module):
    r"""Discriminator on concatenated vectors, with two hidden layers.

    The score is \(S(a, b) = \text{MLP}([a; b])\).

    The first layer acts on the two halves separately, \(W [a; b] = W_a a + W_b b\). It is therefore computed
    n + m times instead of n m times.

    Shapes: `(n, dim)` and `(m, other_dim)` give `(n, m)`.

    Requirements: Use it in a table as `critic.as_score()`. The score is not a metric. A strong critic can
    hide a weak encoder.

    Relations: It is the statistics network T of MINE, Deep InfoMax and IS-BERT, and the fusion network of
    L3-Net.
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
        """Return this critic as a score."""
        return build_learned_score(self, values_per_pair=self.values_per_pair)


class SeparableCritic(nn.Module):
    r"""Two networks with one hidden layer and a dot product.

    The score is \(S(a, b) = g(a)^\top h(b)\).

    Shapes: `(n, dim)` and `(m, other_dim)` give `(n, m)`.

    Relations: `Scores.from_pairs(critic.g(a), critic.h(b), score=dot)` is the same table and computes every
    vector once. The critic is weaker than `ConcatCritic` of the same width, but a table needs only n + m
    passes through the networks.
    """

    def __init__(self, dim: int, other_dim: int | None = None, hidden_dim: int = 256, out_dim: int = 128):
        super().__init__()
        self.g = nn.Sequential(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))
        self.h = nn.Sequential(nn.Linear(other_dim or dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))

    def forward(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        return self.g(a) @ self.h(b).T

    def as_score(self) -> Score:
        """Return this critic as a score."""
        return build_learned_score(self)


class CrossCritic(nn.Module):
    r"""Transformer on two sequences.

    The score is \(S(x, y) = w^\top \text{Transformer}([\text{cls}; x; y])_{\text{cls}}\).

    Shapes: `(n, t, d)` and `(m, u, d)` give `(n, m)`. A token of zeros is padding and is ignored. Each side
    has a learned vector that is added to its tokens and distinguishes the sides. The encoders add the
    positions.

    Requirements: A table needs n m passes through the transformer. There is no dropout, because a score must
    give the same value when it is computed again.

    Reference: Sun et al., Learning Video Representations using Contrastive Bidirectional Transformer,
    arXiv:1906.05743.
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
        """Return this critic as a score.

        `num_tokens` is t + u and determines the size of blocks.
        """
        return build_learned_score(self, values_per_pair=8 * self.cls.numel() * (num_tokens + 1))


class Temperature(nn.Module):
    r"""Learned temperature, stored as the logarithm of the scale.

    A call returns the scale \(1 / \tau = e^\theta\), which is always positive. `clamp_scale` keeps the scale
    at or below `max_scale`. Call it in `Recipe.update`, after the optimizer. A bound in the forward pass
    would have no gradient beyond the bound, so a scale beyond it would never return.

    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML
    2021, section 2.5.
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
        """Limit the scale to at most `max_scale`."""
        self.log_scale.clamp_(max=math.log(self.max_scale))


def _need_positive(where: str, **values: Number) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UsageError(f"{where}: {name} must be greater than 0, got {value}")

r"""Sampling matters: negatives are drawn at all distances alike, and the boundary between near and far is learned.

Claim: which examples are drawn matters as much as the loss. Random negatives on a sphere nearly all lie at a distance of √2, where no
loss is left; the hardest ones lie so near that noise decides the direction of their gradient. Drawn with the inverse of the density
of distances, they cover the whole range, and then even a simple loss does best.

$$\ell(i, j) = \big(\alpha + y_{ij} (D_{ij} - \beta_{c(i)})\big)_+, \qquad
P(n \mid i) \propto \min\big(\lambda,\; q^{-1}(D_{in})\big), \qquad q(D) \propto D^{d-2} \big(1 - \tfrac14 D^2\big)^{\frac{d-3}{2}}$$

with \(y_{ij} = 1\) for pairs of a class and -1 for others, \(D\) the L2 distance of unit vectors, and as many negatives as positives for
each anchor; the mean over the terms that are not 0, to which \(\nu\) times the mean \(\beta\) is added.

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim) unit vectors; beta (classes,) -> n (K - 1) pairs of either kind.

Requirements: labels, and enough classes in a batch that there are negatives at all distances. Nearer than 0.5 all are drawn alike
(that is lambda), beyond 1.4 none.

Relations: hadsell-drlim has a fixed boundary for strangers and pulls positives to a point; facenet compares with the positive instead of
a boundary. `--sampling uniform` and `semi-hard` are what the paper compares with.

Reference: Wu, Manmatha, Smola & Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017, arXiv:1706.07567.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Sizes, TrainConfig
from nearfar.heads import Normalize, mlp
from nearfar.losses import draw_distance_weighted_negatives, draw_random_negatives, margin_based, mine_semi_hard_negatives, select_negatives
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, euclidean


@dataclass(frozen=True)
class SamplingMatters(MetricLearning):
    """Sampling Matters in Deep Embedding Learning: distance-weighted negatives, margin-based loss."""

    card = Card(
        title="Sampling matters",
        paper="arXiv:1706.07567",
        year=2017,
        modality="image",
        similarity="labels",
        query="anchor image",
        positive="every other image of the class in the batch",
        negative="as many images of other classes, drawn by the inverse density of their distance",
        encoder="one, end to end",
        head="linear, to the unit sphere",
        score="L2",
        loss="margin-based, with a learned boundary for each class",
        equation=r"\ell(i, j) = \big(\alpha + y_{ij} (D_{ij} - \beta_{c(i)})\big)_+",
    )
    limits = {"boundary_weight": (0.0, float("inf"))}  # noqa: RUF012

    margin: float = 0.2
    """Margin on either side of the boundary."""
    initial_boundary: float = 1.2
    """The boundary at the start; it is learned, one for each class."""
    boundary_weight: float = 0.0
    """Weight of the boundaries: the larger, the smaller they become."""
    sampling: Literal["distance", "uniform", "semi-hard"] = "distance"
    """How negatives are drawn: at all distances alike, at random, or the nearest beyond the farthest positive."""

    def build(self, sizes: Sizes, encoder) -> Net:
        net = super().build(sizes, encoder)
        net.beta = nn.Parameter(torch.full((max(1, sizes["classes"]),), self.initial_boundary))
        return net

    def build_head(self, width: int) -> nn.Module:
        return nn.Sequential(mlp(width, self.dim), Normalize())

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        S, beta = Scores.from_labels(z["z"], z["y"], score=euclidean), net.beta[z["y"]]
        chosen = select_negatives(S, self.draw_negatives(S, z["slot"], rng_key))
        return {"loss": margin_based(chosen, beta, self.margin) + self.boundary_weight * beta.mean(), "boundary": beta.mean()}

    def draw_negatives(self, S: Scores, slots: Int[Tensor, " n"], rng_key: RandomKey) -> Int[Tensor, "n _"]:
        k = self.samples_per_class - 1
        if self.sampling == "semi-hard":
            return mine_semi_hard_negatives(S, k)
        draw = draw_random_negatives if self.sampling == "uniform" else draw_distance_weighted_negatives
        return draw(S, k, rng_key("negatives"), slots)


paper = SamplingMatters(dim=128, samples_per_class=5), TrainConfig(
    data="online_products", encoder="resnet50-imagenet", image_size=224, batch_size=200, epochs=100, lr=1e-4, weight_decay=1e-4, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "Stanford Online Products R@1, ResNet-50": (72.7, "arXiv:1706.07567"),
    "CUB-200-2011 R@1, ResNet-50": (63.6, "arXiv:1706.07567"),
}

tiny = SamplingMatters(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

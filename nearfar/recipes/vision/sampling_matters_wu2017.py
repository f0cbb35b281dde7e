r"""Sampling matters: distance-weighted negatives and a learned boundary between positives and negatives.

Claim: the choice of samples matters as much as the loss. Random negatives on a sphere nearly all lie at a
distance of √2, where the loss is already zero. The hardest negatives lie so close that noise decides the
direction of their gradient. Negatives weighted by the inverse density of distances cover the whole range.
With them even a simple loss gives the best results.

$$\ell(i, j) = \big(\alpha + y_{ij} (D_{ij} - \beta_{c(i)})\big)_+, \qquad
P(n \mid i) \propto \min\big(\lambda,\; q^{-1}(D_{in})\big), \qquad q(D) \propto D^{d-2} \big(1 - \tfrac14 D^2\big)^{\frac{d-3}{2}}$$

\(y_{ij} = 1\) for pairs of a class and -1 for others. \(D\) is the L2 distance of unit vectors. Each anchor
has as many negatives as positives. The loss is the mean over the terms that are not 0, plus \(\nu\) times the
mean \(\beta\).

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim) unit vectors; beta (classes,) -> n (K
- 1) positive pairs and as many negative pairs.

Requirements: labels, and enough classes in a batch to find negatives at all distances. Negatives nearer than
0.5 are drawn with equal weights (this limit is lambda). Negatives beyond 1.4 are not drawn.

Relations: hadsell-drlim has a fixed boundary for negatives and pulls positives to a point. facenet compares
with the positive instead of a boundary. `--sampling uniform` and `semi-hard` are the paper's baselines.

Reference: Wu, Manmatha, Smola & Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017,
arXiv:1706.07567.
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
    """Sampling matters in deep embedding learning: distance-weighted negatives, margin-based loss."""

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
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("projection",),
    )
    limits = {"boundary_weight": (0.0, float("inf"))}  # noqa: RUF012

    margin: float = 0.2
    """Margin on either side of the boundary (alpha in the equation)."""
    initial_boundary: float = 1.2
    """Initial boundary (beta in the equation). Training learns one boundary for each class."""
    boundary_weight: float = 0.0
    """Weight of the boundaries in the loss (nu). Larger weights give smaller boundaries."""
    sampling: Literal["distance", "uniform", "semi-hard"] = "distance"
    """Sampling of negatives: distance, uniform or semi-hard. distance weights by inverse density; semi-hard
    takes the nearest beyond the farthest positive."""

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
        """Draw the negatives of each anchor with the chosen sampling method."""
        k = self.samples_per_class - 1
        if self.sampling == "semi-hard":
            return mine_semi_hard_negatives(S, k)
        draw = draw_random_negatives if self.sampling == "uniform" else draw_distance_weighted_negatives
        return draw(S, k, rng_key("negatives"), slots)


paper = SamplingMatters(dim=128, samples_per_class=5), TrainConfig(
    data="online_products", encoder="resnet50-imagenet", image_size=224, batch_size=200, epochs=100, lr=1e-4, weight_decay=1e-4,
    warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "Stanford Online Products R@1, ResNet-50": (72.7, "arXiv:1706.07567"),
    "CUB-200-2011 R@1, ResNet-50": (63.6, "arXiv:1706.07567"),
}

tiny = SamplingMatters(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

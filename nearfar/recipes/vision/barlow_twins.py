r"""Barlow Twins: make the cross-correlation of two views' embeddings the identity matrix.

Claim: two conditions are enough. Each dimension agrees between the views (diagonal), and different dimensions
carry different information (off-diagonal). The method needs no negatives, no momentum encoder and no
predictor. It is robust to small batches.

$$\mathcal{L} = \sum_i (1 - C_{ii})^2 + \lambda \sum_i \sum_{j \neq i} C_{ij}^2,
\qquad C_{ij} = \frac{\sum_b z^A_{b,i}\, z^B_{b,j}}{\sqrt{\sum_b (z^A_{b,i})^2} \sqrt{\sum_b (z^B_{b,j})^2}}$$

Both embeddings are centered over the batch.

Shapes: z^A, z^B (n, dim); C (dim, dim).

Requirements: embeddings wider than for contrastive losses (8192 in the paper).

Relations: SimCLR contrasts rows (samples), Barlow Twins contrasts columns (features). W-MSE whitens instead
of penalizing correlation. BYOL avoids collapse with a predictor and a momentum encoder.

Reference: Zbontar, Jing, Misra, LeCun & Deny, "Barlow Twins: Self-Supervised Learning via Redundancy
Reduction", ICML 2021, arXiv:2103.03230.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import barlow_twins
from nearfar.similarity import ImageViews, byol_views, choose_views


@dataclass(frozen=True)
class BarlowTwins(Recipe):
    """Redundancy reduction: make views agree in each dimension and decorrelate different dimensions."""

    card = Card(
        title="Barlow Twins",
        paper="arXiv:2103.03230",
        year=2021,
        modality="image",
        similarity="data transformation",
        query="augmented image (view A)",
        positive="augmented image (view B)",
        negative="none (different dimensions are decorrelated)",
        encoder="one, end to end",
        head="MLP with two hidden layers",
        score="cross-correlation of dimensions",
        loss="squared distance of the cross-correlation to the identity",
        equation=r"\mathcal{L} = \sum_i (1 - C_{ii})^2 + \lambda \sum_i \sum_{j \neq i} C_{ij}^2",
        family="no negatives",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    limits = {"redundancy_weight": (0.0, float("inf"))}  # noqa: RUF012

    dim: int = 1024
    """Dimension of the embedding, and width of the head's hidden layers."""
    redundancy_weight: float = 5e-3
    """Weight of the off-diagonal terms (lambda in the equation)."""
    norm: HeadNorm = "batch"
    """Normalization in the head."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, byol_views)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, self.dim, self.dim, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"a": net.head(net.encoder(x["v0"])), "b": net.head(net.encoder(x["v1"]))}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return barlow_twins(z["a"], z["b"], self.redundancy_weight)


paper = BarlowTwins(dim=8192), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=2048, epochs=1000,
    optimizer="lars", lr=1.6, weight_decay=1.5e-6, momentum=0.9, warmup_ratio=0.01,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 1000 epochs": (73.2, "arXiv:2103.03230, table 1")}

tiny = BarlowTwins(dim=256, redundancy_weight=2e-2), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

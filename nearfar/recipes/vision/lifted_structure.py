r"""Lifted structure: contrast every positive pair of the batch with all negatives of both samples.

Claim: a batch of n samples contains n² distances. Pairs or triplets that are drawn beforehand use few of
them. Lifting the vector of distances to the full matrix makes every pair part of the loss, and trains better
embeddings with the same batches.

$$\mathcal{L} = \frac{1}{2 |P|} \sum_{(i, j) \in P} \max(0, J_{ij})^2, \qquad
J_{ij} = D_{ij} + \log\Big( \sum_{(i, k) \in N} \exp(\alpha - D_{ik}) + \sum_{(j, l) \in N} \exp(\alpha - D_{jl}) \Big)$$

P are the positive and N the negative pairs of the batch. D is the L2 distance.

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim), not normalized -> a table of n rows.

Requirements: labels. The paper starts a batch from random positive pairs and adds difficult neighbors of them
(`build_hard_batch`). Here, as in later methods, the batch has P classes with K samples each.

Relations: the two sums smooth max(max_k (alpha - D_ik), max_l (alpha - D_jl)). The paper begins with this
maximum (`lifted_structure`) and finds that it gets stuck in local optima. hermans-batch-hard compares the
hardest positive with the hardest negative of a single anchor. J grows with the logarithm of the number of
negatives, so the margin depends on the batch size.

Reference: Song, Xiang, Jegelka & Savarese, "Deep Metric Learning via Lifted Structured Feature Embedding",
CVPR 2016, arXiv:1511.06452.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig
from nearfar.losses import lifted_structure_smooth
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, euclidean


@dataclass(frozen=True)
class LiftedStructure(MetricLearning):
    """Deep metric learning via lifted structured feature embedding: all distances of a batch."""

    card = Card(
        title="Lifted structure",
        paper="arXiv:1511.06452",
        year=2016,
        modality="image",
        similarity="labels",
        query="both images of a positive pair",
        positive="every image of the same class in the batch",
        negative="all images of other classes in the batch, of both ends of the pair",
        encoder="one, end to end",
        head="linear",
        score="L2",
        loss="lifted structure, with log-sum-exp for the maxima",
        equation=r"J_{ij} = D_{ij} + \log\Big( \sum_{(i, k) \in N} e^{\alpha - D_{ik}} + \sum_{(j, l) \in N} e^{\alpha - D_{jl}} \Big)",
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("projection",),
    )

    margin: float = 1.0
    """Margin (alpha in the equation)."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return lifted_structure_smooth(Scores.from_labels(z["z"], z["y"], score=euclidean), self.margin)


paper = LiftedStructure(dim=64), TrainConfig(
    data="online_products", encoder="resnet50-imagenet", image_size=224, batch_size=128, steps=20_000,
    optimizer="sgd", lr=1e-4, weight_decay=2e-4, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = LiftedStructure(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

r"""Batch hard: one triplet for each anchor, with the hardest positive and negative.

Claim: the triplet loss, trained end to end, beats classifiers with a metric learned on top for person
re-identification, if triplets are mined. The hardest triplets within a batch of P persons and K images of
each are only moderately hard in the whole dataset, and need no search. A softplus instead of the hinge keeps
pulling samples together even within the margin.

$$\mathcal{L} = \frac{1}{PK} \sum_{i=1}^{P} \sum_{a=1}^{K} \log\Big(1 + \exp\Big(
\max_{p = 1 \dots K} D\big(f(x_a^i), f(x_p^i)\big) - \min_{j \neq i,\; n = 1 \dots K} D\big(f(x_a^i), f(x_n^j)\big)\Big)\Big)$$

The hinge \([m + \cdot]_+\) may replace \(\log(1 + e^{\cdot})\). D is the distance itself, not its square.

Shapes: view (n, c, h, w) of P classes with K samples each, n = P K -> z (n, dim), not normalized -> n
triplets.

Requirements: labels with few errors, because an outlier is always the hardest sample. Squared distances make
the embedding collapse more easily. Vectors are not normalized.

Relations: facenet takes, for every positive, a negative that is not too hard. `batch_all` averages all
triplets that violate the margin. With log-sum-exp for maximum and minimum the loss is the generalized lifted
structure (`lifted_structure_generalized`).

Reference: Hermans, Beyer & Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017,
arXiv:1703.07737.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import batch_hard, batch_hard_soft_margin
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, euclidean


@dataclass(frozen=True)
class BatchHard(MetricLearning):
    """Hardest triplet of each anchor, with a soft margin."""

    card = Card(
        title="Batch hard",
        paper="arXiv:1703.07737",
        year=2017,
        modality="image",
        similarity="labels",
        query="anchor image",
        positive="the farthest image of the class in the batch",
        negative="the nearest image of another class in the batch",
        encoder="one, end to end",
        head="MLP with one hidden layer",
        score="L2",
        loss="triplet of the hardest, with a soft margin",
        equation=r"\ell_a = \log\Big(1 + \exp\big(\max_{p} D(z_a, z_p) - \min_{n} D(z_a, z_n)\big)\Big)",
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("projection",),
    )

    hidden_dim: int = 256
    """Width of the head's hidden layer."""
    norm: HeadNorm = "batch"
    """Normalization in the head."""
    soft_margin: bool = True
    """Whether to use a softplus instead of the hinge; it has no margin."""
    margin: float = 0.2
    """Margin of the hinge (m). Unused with --soft-margin."""

    def build_head(self, width: int) -> nn.Module:
        return mlp(width, self.hidden_dim, self.dim, norm=self.norm)

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        S = Scores.from_labels(z["z"], z["y"], score=euclidean)
        return (batch_hard_soft_margin(S) if self.soft_margin else batch_hard(S, self.margin)).mean()


paper = BatchHard(dim=128, hidden_dim=1024), TrainConfig(
    data="market1501", encoder="resnet50-imagenet", image_size=256, batch_size=72, steps=25_000, lr=3e-4,
    weight_decay=0.0, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "Market-1501 mAP, TriNet, single query": (69.14, "arXiv:1703.07737"),
    "Market-1501 rank 1, TriNet, single query": (84.92, "arXiv:1703.07737"),
}

tiny = BatchHard(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

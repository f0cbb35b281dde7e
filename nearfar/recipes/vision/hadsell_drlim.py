r"""DrLIM: keep neighbors close together and all other samples a margin apart.

Claim: labels, distances or known distortions define which samples are neighbors. From this rule alone the
encoder learns a low-dimensional map in which neighbors are close. New samples are mapped without comparing
them to other samples. Pulling alone would collapse the map to a point: the push between non-neighbors
prevents this.

$$L(W, Y, X_1, X_2) = (1 - Y)\,\tfrac12 D_W^2 + Y\,\tfrac12 \max(0,\; m - D_W)^2, \qquad
D_W = \lVert G_W(X_1) - G_W(X_2) \rVert_2$$

Y = 0 for a pair of neighbors and Y = 1 for any other pair. The loss is the mean over all pairs of a batch.

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim), not normalized -> n (n - 1) pairs.

Requirements: a rule that defines neighbors. Here the rule is the label, and a slightly shifted and distorted
view stands for the paper's shifted copies. The paper also uses the nearest samples in pixel space. Far more
pairs are negatives than neighbors: a larger K gives fewer negatives.

Relations: the hinge is squared outside, so that the push fades towards the margin. The survey's form max(0, m
- D²) is another loss (`contrastive_pair_squared`). Chopra et al. 2005, often cited for this loss, used an
exponential. facenet only requires that the positive is closer than the negative, not that each lies on its
side of a fixed distance. sampling-matters-wu2017 learns this distance.

Reference: Hadsell, Chopra & LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig
from nearfar.losses import contrastive_pair
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, euclidean


@dataclass(frozen=True)
class DrLIM(MetricLearning):
    """Dimensionality reduction by learning an invariant mapping: the pair loss."""

    card = Card(
        title="DrLIM",
        paper="CVPR 2006",
        year=2006,
        modality="image",
        similarity="labels",
        query="image",
        positive="every image of the same class in the batch",
        negative="every image of another class in the batch",
        encoder="one, applied to both (siamese), end to end",
        head="linear",
        score="L2",
        loss="pair loss with a squared hinge",
        equation=r"L = (1 - Y)\,\tfrac12 D_W^2 + Y\,\tfrac12 \max(0, m - D_W)^2",
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("projection",),
    )

    margin: float = 1.0
    """Margin (m in the equation). Negative pairs beyond this distance have no loss."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return contrastive_pair(Scores.from_labels(z["z"], z["y"], score=euclidean), self.margin).mean() / 2


paper = DrLIM(dim=2), TrainConfig(data="mnist", encoder="convnet", batch_size=128, epochs=100, optimizer="sgd", lr=0.01, weight_decay=0.0)

reported = {}

tiny = DrLIM(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

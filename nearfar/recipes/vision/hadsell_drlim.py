r"""DrLIM: a mapping that keeps neighbours together and everybody else a margin apart.

Claim: whoever says which samples are neighbours, by labels, by distance or by a known distortion, can have a low-dimensional map in
which they are, and which new samples enter without being compared to any other. Pulling alone would collapse it to a point: the
push between those that are no neighbours keeps it open.

$$L(W, Y, X_1, X_2) = (1 - Y)\,\tfrac12 D_W^2 + Y\,\tfrac12 \max(0,\; m - D_W)^2, \qquad
D_W = \lVert G_W(X_1) - G_W(X_2) \rVert_2$$

with Y = 0 for a pair of neighbours and Y = 1 for any other; averaged over all pairs of a batch.

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim), of any length -> n (n - 1) pairs.

Requirements: a rule for who is a neighbour. Here it is the label, and a view that is moved and bent a little stands for the paper's
shifted copies; the paper also takes the nearest in pixels. Far more pairs are strangers than neighbours: the larger K, the fewer.

Relations: the hinge is squared outside, so that the push fades towards the margin; the survey's form max(0, m - D²) is another loss
(`pair_of_squares`), and Chopra et al. 2005, often cited for it, had an exponential. facenet asks only that the positive be nearer than
the negative, not that both lie on their sides of a fixed distance; sampling-matters-wu2017 learns this distance.

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
    """Dimensionality Reduction by Learning an Invariant Mapping: the pair loss."""

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
    )

    margin: float = 1.0
    """Margin: strangers that are farther apart are left alone."""

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return contrastive_pair(Scores.from_labels(z["z"], z["y"], score=euclidean), self.margin).mean() / 2


paper = DrLIM(dim=2), TrainConfig(data="mnist", encoder="convnet", batch_size=128, epochs=100, optimizer="sgd", lr=0.01, weight_decay=0.0)

reported = {}

tiny = DrLIM(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

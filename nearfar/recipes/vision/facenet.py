r"""FaceNet: triplets with semi-hard negatives, for embeddings of faces.

Claim: an embedding trained only for its distances turns verification into a threshold, recognition into
nearest-neighbor search, and clustering into k-means. It has 128 numbers for each face. A face is closer to
every image of the same person than to images of others, by a margin. The choice of triplets makes training
converge.

$$\mathcal{L} = \frac{1}{|T|} \sum_{(a, p, n) \in T} \Big( \lVert f(x_a) - f(x_p) \rVert_2^2 - \lVert f(x_a) - f(x_n) \rVert_2^2
+ \alpha \Big), \qquad \lVert f(x) \rVert_2 = 1$$

T has all pairs (a, p) of a class in the batch, each with its nearest semi-hard negative:

$$\lVert f(x_a) - f(x_p) \rVert_2^2 < \lVert f(x_a) - f(x_n) \rVert_2^2 < \lVert f(x_a) - f(x_p) \rVert_2^2 + \alpha$$

Shapes: view (n, c, h, w) of P classes with K samples each -> z (n, dim) unit vectors -> a table of n rows.

Requirements: labels, and large batches with several samples of each class (in the paper 1,800 faces, about 40
of each person), so that semi-hard negatives exist. Pairs without a semi-hard negative are left out. The loss
is the mean over the other pairs, and 0 if there are none.

Relations: hermans-batch-hard takes the hardest triplet of each anchor. FaceNet avoids these triplets, because
they can cause collapse early in training. sampling-matters-wu2017 draws negatives at all distances. The
squared distance of unit vectors is 2 - 2 cos. The triplet loss is older (LMNN, 2006). Online mining and the
unit sphere are new in FaceNet.

Reference: Schroff, Kalenichenko & Philbin, "FaceNet: A Unified Embedding for Face Recognition and
Clustering", CVPR 2015, arXiv:1503.03832.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig
from nearfar.heads import Normalize, mlp
from nearfar.losses import semi_hard_triplet
from nearfar.recipes.metric_learning import MetricLearning
from nearfar.scores import Scores, squared_euclidean


@dataclass(frozen=True)
class FaceNet(MetricLearning):
    """Unified embedding for face recognition and clustering: triplets with semi-hard negatives."""

    card = Card(
        title="FaceNet",
        paper="arXiv:1503.03832",
        year=2015,
        modality="image",
        similarity="labels",
        query="anchor image",
        positive="every other image of the class in the batch",
        negative="the nearest image of another class that is farther than the positive, within the margin",
        encoder="one, end to end",
        head="linear, to the unit sphere",
        score="squared L2",
        loss="triplet, semi-hard negatives mined in the batch",
        equation=r"\mathcal{L} = \frac{1}{|T|} \sum_{(a, p, n) \in T} \lVert f(x_a) - f(x_p) \rVert^2 - \lVert f(x_a) - f(x_n) \rVert^2"
        r" + \alpha",
        family="energy and margin",
        similarity_type=("labels",),
        head_type=("projection",),
    )

    margin: float = 0.2
    """Margin between squared distances (alpha in the equation)."""

    def build_head(self, width: int) -> nn.Module:
        return nn.Sequential(mlp(width, self.dim), Normalize())

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return semi_hard_triplet(Scores.from_labels(z["z"], z["y"], score=squared_euclidean), self.margin)


paper = FaceNet(dim=128, samples_per_class=40), TrainConfig(
    data="faces", encoder="resnet50-imagenet", image_size=224, batch_size=1800, epochs=100,
    optimizer="adagrad", lr=0.05, weight_decay=0.0, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "LFW verification accuracy, extra alignment": (99.63, "arXiv:1503.03832, abstract"),
    "YouTube Faces verification accuracy": (95.12, "arXiv:1503.03832, abstract"),
}

tiny = FaceNet(), TrainConfig(data="digits", steps=150, batch_size=128, lr=2e-3)

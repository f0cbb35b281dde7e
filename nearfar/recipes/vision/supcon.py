r"""SupCon: SimCLR with labels, where all views of the same class are positives.

Claim: pulling whole classes together and different classes apart beats cross-entropy in accuracy. It depends
less on hyperparameters and on clean images. More positives give better results.

$$\mathcal{L} = \sum_{i \in I} \frac{-1}{|P(i)|} \sum_{p \in P(i)} \log \frac{\exp(z_i \cdot z_p/\tau)}
{\sum_{a \in I \setminus \{i\}} \exp(z_i \cdot z_a/\tau)}, \qquad P(i) = \{p \in I \setminus \{i\} : y_p = y_i\}$$

\(I\) are the 2n views of a batch. Both views of all images of the class are positives, except the view
itself.

Shapes: views v0, v1 (n, c, h, w), labels (n,) -> z (n, dim) each -> a table of 2n rows. The loss is the mean
over the rows.

Requirements: labels, and batches with several samples of the same class. The head is discarded. A linear
classifier is trained on the representation afterwards.

Relations: SimCLR is the case in which every image is a separate class. The minimum of the loss is not 0:
positives compete with each other, so that |P| equally near positives leave log |P|. The mean over positives
is outside the logarithm. Inside the logarithm (`mil_nce`) a single near positive would be enough, which the
paper finds worse. The normalizer is |P(i)|, the number of views of the class minus one.

Reference: Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, arXiv:2004.11362.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Embeddings, Net, RandomKey, TrainConfig, Views
from nearfar.heads import HeadNorm
from nearfar.losses import supcon
from nearfar.recipes.vision.simclr import SimCLR
from nearfar.scores import Scores
from nearfar.similarity import choose_views, moco_v2_views
from nearfar.similarity.labels import LabeledViews


@dataclass(frozen=True)
class SupCon(SimCLR):
    """Supervised contrastive learning: all views of the same class are positives."""

    card = dataclasses.replace(
        SimCLR.card,
        title="SupCon",
        paper="arXiv:2004.11362",
        similarity="labels and data transformation",
        positive="all other views of images with the same label",
        negative="all views of images with another label",
        loss="supervised contrastive (mean over positives outside the logarithm)",
        equation=r"\ell_i = \frac{-1}{|P(i)|} \sum_{p \in P(i)} \log \frac{\exp(z_i \cdot z_p/\tau)}"
        r"{\sum_{a \neq i} \exp(z_i \cdot z_a/\tau)}",
        similarity_type=("labels", "data transformation"),
    )
    uses_labels = True

    temperature: float = 0.1
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    norm: HeadNorm = "none"
    """Normalization in the projection head."""

    def similarity(self, net: Net) -> LabeledViews:  # pyright: ignore[reportIncompatibleMethodOverride]
        return LabeledViews(choose_views(net.sizes, moco_v2_views))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return super().embed(net, x, rng_key) | {"y": x["label"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        rows, y = torch.cat([z["z0"], z["z1"]]), z["y"].repeat(2)
        return supcon(Scores.from_labels(rows, y) / self.temperature).mean()


paper = SupCon(), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=6144, epochs=350,
    optimizer="lars", lr=7.2, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.03,
)  # fmt: skip

reported = {
    "ImageNet top-1, ResNet-50": (78.7, "arXiv:2004.11362, table 2"),
    "CIFAR-10, ResNet-50": (96.0, "arXiv:2004.11362, table 2"),
}

tiny = SupCon(), TrainConfig(data="digits", steps=150, batch_size=256, lr=2e-3)

r"""Invariant and spreading instance feature: recognize each augmented image as its original in a batch.

Claim: class labels would make features similar within a class and different between classes. Instances alone
can replace them: features are invariant to augmentation and spread over the sphere. The batch's own features
replace class weights and a memory bank, so that both sides of every comparison are up to date.

$$J = -\sum_i \log P(i \mid \hat x_i) - \sum_i \sum_{j \neq i} \log\big(1 - P(i \mid x_j)\big), \qquad
P(i \mid \hat x_i) = \frac{\exp(f_i^\top \hat f_i/\tau)}{\sum_k \exp(f_k^\top \hat f_i/\tau)}, \quad
P(i \mid x_j) = \frac{\exp(f_i^\top f_j/\tau)}{\sum_k \exp(f_k^\top f_j/\tau)}$$

\(f\) are the features of the originals \(x\), \(\hat f\) those of the augmented images \(\hat x\). k runs
over the originals of the batch, j itself included.

Shapes: v0 the original images and v1 the augmented images (n, c, h, w) -> f, \(\hat f\) (n, dim). The loss is
J / n.

Requirements: only the batch: no bank, no queue, no second encoder.

Relations: the first term alone is InfoNCE in one direction, or N-pair with a temperature. The second term
pushes originals apart; the first does this only through their augmented copies. Instance discrimination (Wu
et al.) computes the softmax over a bank of stale features. SimCLR uses two augmented views, all other views
as negatives, an MLP head and larger batches.

Reference: Ye, Zhang, Yuen & Chang, "Unsupervised Embedding Learning via Invariant and Spreading Instance
Feature", CVPR 2019, arXiv:1904.03436.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import mlp
from nearfar.losses import info_nce, spreading
from nearfar.scores import Scores
from nearfar.similarity import Compose, ImageViews, choose_views, moco_v1_views


@dataclass(frozen=True)
class InvariantSpreading(Recipe):
    """Unsupervised embedding learning with invariant and spreading instance features."""

    card = Card(
        title="Invariant and spreading instance feature",
        paper="arXiv:1904.03436",
        year=2019,
        modality="image",
        similarity="data transformation",
        query="augmented image",
        positive="the image itself",
        negative="the batch's other images",
        encoder="one, end to end",
        head="linear",
        score="cosine / tau",
        loss="softmax over the batch for the augmented, its complement for the originals",
        equation=r"J = -\sum_i \log P(i \mid \hat x_i) - \sum_i \sum_{j \neq i} \log\big(1 - P(i \mid x_j)\big)",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    dim: int = 128
    """Dimension of the space where images are compared."""
    temperature: float = 0.1
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""

    def similarity(self, net: Net) -> ImageViews:
        augmented = choose_views(net.sizes, moco_v1_views).pipelines[0]
        return ImageViews((Compose(), augmented))  # an empty pipeline returns the original image

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        f, f_hat = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"f": f, "f_hat": f_hat}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        f, f_hat = z["f"], z["f_hat"]
        invariant = info_nce(Scores.from_pairs(f_hat, f) / self.temperature).mean()
        spread = spreading(Scores.from_pairs(f, f) / self.temperature).mean()
        return {"loss": invariant + spread, "invariant": invariant, "spread": spread}


paper = InvariantSpreading(), TrainConfig(
    data="cifar10", encoder="resnet18", batch_size=128, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=5e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"CIFAR-10 kNN (k = 200), ResNet-18, 200 epochs": (83.6, "arXiv:1904.03436, table 1")}

tiny = InvariantSpreading(temperature=0.5), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

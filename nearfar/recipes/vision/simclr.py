r"""SimCLR: match two augmented views of every image among all other views of the batch.

Claim: a simple framework is enough. It combines strong composed augmentation, a non-linear projection head
that is discarded after training, a temperature, and many negatives in a large batch. Together they reach the
accuracy that earlier needed memory banks and special architectures.

$$\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}
{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)}$$

Shapes: views v0, v1 (n, c, h, w) -> representation h (n, encoder.dim) -> z (n, dim). The loss is the mean
over all 2n rows.

Requirements: a batch with enough negatives, 2(n - 1) for each view, and views that keep the content of the
image.

Relations: MoCo replaces the negatives of the batch by a queue from a momentum encoder. SupCon extends the
positives to all images of a class. The debiased and hard-negative losses reweight the same negatives. BYOL
and Barlow Twins have no negatives. Both views share one encoder.

Reference: Chen, Kornblith, Norouzi & Hinton, "A Simple Framework for Contrastive Learning of Visual
Representations", ICML 2020, arXiv:2002.05709.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity import ImageViews, choose_views, simclr_views


@dataclass(frozen=True)
class SimCLR(Recipe):
    """Simple framework for contrastive learning of visual representations."""

    card = Card(
        title="SimCLR",
        paper="arXiv:2002.05709",
        year=2020,
        modality="image",
        similarity="data transformation",
        query="augmented image",
        positive="the other augmented view of the same image",
        negative="all views of the batch's other images, 2(N-1)",
        encoder="one, end to end",
        head="MLP with one hidden layer",
        score="cosine / tau",
        loss="NT-Xent (InfoNCE over both views)",
        equation=r"\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}"
        r"{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)}",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    limits = {"gray_prob": (0.0, 1.0), "min_crop_scale": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 128
    """Dimension of the space where views are compared."""
    temperature: float = 0.5
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    norm: HeadNorm = "batch"
    """Normalization in the projection head."""
    gray_prob: float = 0.2
    """Probability that a view of a photograph is converted to grayscale. On CIFAR-10 others use 0.1 (Ermolov
    et al., arXiv:2007.06346)."""
    min_crop_scale: float = 0.08
    """Smallest share of a photograph that a random crop keeps. On CIFAR-10 others use 0.2 (Ermolov et
    al.)."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, partial(simclr_views, gray_prob=self.gray_prob, min_crop_scale=self.min_crop_scale))

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, encoder.dim, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z0, z1 = net.head(net.encoder(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"z0": z0, "z1": z1}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return info_nce(Scores.from_views(z["z0"], z["z1"]) / self.temperature).mean()


paper = SimCLR(temperature=0.1), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=4096, epochs=1000,
    optimizer="lars", lr=4.8, weight_decay=1e-6, momentum=0.9, warmup_ratio=0.01,
)  # fmt: skip

reported = {
    "ImageNet linear top-1, ResNet-50, 1000 epochs": (69.3, "arXiv:2002.05709, table 6"),
    "CIFAR-10 linear, ResNet-50": (94.0, "arXiv:2002.05709, appendix B.9"),
}

tiny = SimCLR(), TrainConfig(data="digits", steps=300, batch_size=256, lr=2e-3)

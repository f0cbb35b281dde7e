r"""MoCo v2: MoCo with SimCLR's projection head and SimCLR's stronger views.

Claim: two design choices of SimCLR, an MLP head and stronger augmentation, also improve MoCo. With them MoCo
reaches SimCLR's level without its large batches.

$$\mathcal{L}_q = -\log \frac{\exp(q \cdot k_+/\tau)}{\exp(q \cdot k_+/\tau) + \sum_{i=1}^{K} \exp(q \cdot k_i/\tau)},
\qquad q = W_2 \max(0, W_1 h)$$

Shapes: as MoCo; the head has one hidden layer as wide as the representation.

Requirements: as MoCo.

Relations: MoCo has a linear head and weaker views. SimCLR uses the batch as the dictionary and has no
momentum encoder. MoCHi mixes harder negatives from the same queue.

Reference: Chen, Fan, Girshick & He, "Improved Baselines with Momentum Contrastive Learning", 2020,
arXiv:2003.04297.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from torch import nn

from nearfar.core import Net, TrainConfig
from nearfar.heads import mlp
from nearfar.recipes.vision.moco import MoCo
from nearfar.similarity import ImageViews, choose_views, moco_v2_views


@dataclass(frozen=True)
class MoCoV2(MoCo):
    """Momentum Contrast with an MLP head and stronger views."""

    card = dataclasses.replace(
        MoCo.card,
        title="MoCo v2",
        paper="arXiv:2003.04297",
        year=2020,
        head="MLP with one hidden layer",
        query="augmented image (stronger views)",
    )

    limits = {**MoCo.limits, "gray_prob": (0.0, 1.0)}  # noqa: RUF012

    temperature: float = 0.2
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    gray_prob: float = 0.2
    """Probability that a view of a photograph is converted to grayscale."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, partial(moco_v2_views, gray_prob=self.gray_prob))

    def build_head(self, width: int) -> nn.Module:
        return mlp(width, width, self.dim)


paper = MoCoV2(queue_size=65536, ema_momentum=0.999, batch_norm_groups=8), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "ImageNet linear top-1, ResNet-50, 200 epochs": (67.5, "arXiv:2003.04297, table 1"),
    "ImageNet linear top-1, ResNet-50, 800 epochs": (71.1, "arXiv:2003.04297, table 2"),
}

tiny = MoCoV2(queue_size=512), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

r"""MoCo v2: MoCo with SimCLR's projection head and SimCLR's stronger views.

Claim: two of SimCLR's design choices, an MLP head and stronger augmentation, carry over to the queue, and reach
SimCLR's level without its large batches.

$$\mathcal{L}_q = -\log \frac{\exp(q \cdot k_+/\tau)}{\exp(q \cdot k_+/\tau) + \sum_{i=1}^{K} \exp(q \cdot k_i/\tau)},
\qquad q = W_2 \max(0, W_1 h)$$

Shapes: as MoCo; the head has one hidden layer as wide as the representation.

Requirements: as MoCo.

Relations: MoCo with a linear head and weaker views; SimCLR with the batch as dictionary and no slow copy. MoCHi mixes
harder negatives out of the same queue.

Reference: Chen, Fan, Girshick & He, "Improved Baselines with Momentum Contrastive Learning", 2020, arXiv:2003.04297.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

from torch import nn

from nearfar.core import Net, Run
from nearfar.heads import mlp
from nearfar.recipes.vision.moco import MoCo
from nearfar.similarity import Augment, moco_v2_views, views_for


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

    limits = {**MoCo.limits, "grey": (0.0, 1.0)}  # noqa: RUF012

    tau: float = 0.2
    """Temperature."""
    grey: float = 0.2
    """Share of the views of photographs that lose their colours."""

    def similarity(self, net: Net) -> Augment:
        return views_for(net.sizes, partial(moco_v2_views, grey=self.grey))

    def head(self, width: int) -> nn.Module:
        return mlp(width, width, self.dim)


paper = MoCoV2(queue=65536, m=0.999, groups=8), Run(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay="all", momentum=0.9, warmup=0.0,
)  # fmt: skip

reported = {
    "ImageNet linear top-1, ResNet-50, 200 epochs": (67.5, "arXiv:2003.04297, table 1"),
    "ImageNet linear top-1, ResNet-50, 800 epochs": (71.1, "arXiv:2003.04297, table 2"),
}

tiny = MoCoV2(queue=512), Run(data="digits", steps=300, batch=128, lr=2e-3)

r"""SimCLR v2, first phase: SimCLR with a deeper projection head and its first layer kept.

Claim: large self-supervised models are strong semi-supervised learners. Pretrain without labels, fine-tune
with few labels, and distill with the unlabeled images again. Keep part of the head: for fine-tuning, the
output of the first of three head layers is a better representation than its input.

$$\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}
{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)},
\qquad z = W_3\, \sigma\big(W_2\, \sigma(W_1 h)\big)$$

Shapes: views v0, v1 (n, c, h, w) -> h (n, encoder.dim) -> \(\sigma(W_1 h)\) (n, encoder.dim), the *middle* ->
z (n, dim).

Requirements: as SimCLR. Larger encoders need fewer labels in the next phase.

Relations: SimCLR has a head of two layers and keeps none. Keeping the first layer is the same as one more
fully connected layer in the encoder. The paper fine-tunes from the first of three layers, not from the second
as some sources state. The paper's largest models add selective kernels and, for about one percent, MoCo's
memory. Runs connect the phases: `simclr-v2-finetune --init-from RUN`, then
`simclr-v2-distil --init-from RUN`. By default a run encodes to h; `encode(net, x, "middle")` returns the
middle.

Reference: Chen, Kornblith, Swersky, Norouzi & Hinton, "Big Self-Supervised Models are Strong Semi-Supervised
Learners", NeurIPS 2020, arXiv:2006.10029.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from nearfar.core import Embeddings, Net, RandomKey, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.recipes.vision.simclr import SimCLR


@dataclass(frozen=True)
class SimCLRv2(SimCLR):
    """Big self-supervised models are strong semi-supervised learners: the pretraining."""

    card = dataclasses.replace(
        SimCLR.card,
        title="SimCLR v2",
        paper="arXiv:2006.10029",
        head="MLP with two hidden layers, the first of which is kept",
        equation=SimCLR.card.equation + r", \qquad z = W_3\, \sigma\big(W_2\, \sigma(W_1 h)\big)",
    )

    def build(self, sizes: Sizes, encoder) -> Net:
        middle = nn.Sequential(encoder, build_first_layer(encoder.dim, self.norm))
        return Net(encoder=encoder, middle=middle, head=mlp(encoder.dim, encoder.dim, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        z0, z1 = net.head(net.middle(torch.cat([x["v0"], x["v1"]]))).chunk(2)
        return {"z0": z0, "z1": z1}


def build_first_layer(width: int, norm: HeadNorm) -> nn.Module:
    r"""Return the hidden layer that fine-tuning keeps, \(\sigma(W_1 h)\)."""
    return mlp(width, width, width, norm=norm)[:-1]


paper = SimCLRv2(temperature=0.1), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=4096, epochs=800,
    optimizer="lars", lr=6.4, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.05,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 800 epochs": (71.7, "arXiv:2006.10029, table 1")}

tiny = SimCLRv2(), TrainConfig(data="digits", steps=250, batch_size=256, lr=2e-3)

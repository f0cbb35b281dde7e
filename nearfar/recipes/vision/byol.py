r"""BYOL: predict the momentum encoder's projection of another view, without negatives.

Claim: an online network predicts the projection of a target network, which follows it slowly. It learns
without any negative pair. The predictor and the slow target prevent collapse to a constant.

$$\mathcal{L} = \lVert \bar q_\theta(z) - \bar z' \rVert_2^2
= 2 - 2\,\frac{\langle q_\theta(z), z' \rangle}{\lVert q_\theta(z) \rVert_2 \lVert z' \rVert_2},
\qquad \xi \leftarrow m\,\xi + (1 - m)\,\theta$$

The loss is symmetrized over the two views. No gradient flows into \(z'\).

Shapes: views (n, c, h, w) -> projections z, z' (n, dim) -> predictions (n, dim).

Requirements: a predictor, a stop-gradient and a slow target. Batch normalization helps but is not necessary
(arXiv:2010.10241 trains with group norm and weight standardization).

Relations: MoCo has the same momentum encoder and contrasts with a queue. Barlow Twins has no negatives
either, but decorrelates dimensions instead of predicting. The momentum of the target is called m here; the
paper's tau is not a temperature.

Reference: Grill et al., "Bootstrap Your Own Latent", NeurIPS 2020, arXiv:2006.07733.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from nearfar.core import Card, Ema, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import byol
from nearfar.similarity import ImageViews, byol_views, choose_views


@dataclass(frozen=True)
class BYOL(Recipe):
    """Bootstrap Your Own Latent: predict the target network's projection of the other view."""

    card = Card(
        title="BYOL",
        paper="arXiv:2006.07733",
        year=2020,
        modality="image",
        similarity="data transformation",
        query="augmented image, through the online network",
        positive="another augmented view, through the target network",
        negative="none",
        encoder="online end to end, target by momentum",
        head="projection MLP and prediction MLP",
        score="cosine",
        loss="normalized squared error, symmetrised",
        equation=r"\mathcal{L} = \lVert \bar q_\theta(z) - \bar z' \rVert_2^2 = 2 - 2\,\frac{\langle q_\theta(z), z' \rangle}"
        r"{\lVert q_\theta(z) \rVert_2 \lVert z' \rVert_2}",
        family="no negatives",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    limits = {"ema_momentum": (0.0, 1.0), "gray_prob": (0.0, 1.0), "min_crop_scale": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 256
    """Dimension of projections and predictions."""
    hidden_dim: int = 1024
    """Width of the hidden layers of both heads."""
    ema_momentum: float = 0.99
    """Momentum of the target network at the start (m in the equation). It rises to 1 on a half-cosine
    schedule."""
    norm: HeadNorm = "batch"
    """Normalization in the heads."""
    gray_prob: float = 0.2
    """Probability that a view of a photograph is converted to grayscale."""
    min_crop_scale: float = 0.08
    """Smallest share of a photograph that a random crop keeps."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, partial(byol_views, gray_prob=self.gray_prob, min_crop_scale=self.min_crop_scale))

    def build(self, sizes: Sizes, encoder) -> Net:
        online = nn.Sequential(encoder, mlp(encoder.dim, self.hidden_dim, self.dim, norm=self.norm))
        predictor = mlp(self.dim, self.hidden_dim, self.dim, norm=self.norm)
        return Net(encoder=encoder, online=online, predictor=predictor, target=Ema(online))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {
            "p0": net.predictor(net.online(x["v0"])), "p1": net.predictor(net.online(x["v1"])),
            "t0": net.target(x["v0"]), "t1": net.target(x["v1"]),
        }  # fmt: skip

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return (byol(z["p0"], z["t1"]) + byol(z["p1"], z["t0"])).mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.target.follow(net.online, 1 - (1 - self.ema_momentum) * (math.cos(math.pi * progress) + 1) / 2)


paper = BYOL(hidden_dim=4096, ema_momentum=0.996), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=4096, epochs=1000,
    optimizer="lars", lr=3.2, weight_decay=1.5e-6, momentum=0.9, warmup_ratio=0.01,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 1000 epochs": (74.3, "arXiv:2006.07733, table 1")}

tiny = BYOL(dim=128, hidden_dim=256), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

r"""W-MSE: whiten each view, then minimize the distance between views of an image.

Claim: the squared distance of positives is enough, if the representations are whitened first: mean 0 and
covariance I over the batch. Whitened vectors cannot collapse. The method needs no negatives, no momentum
encoder and no predictor. Because it needs no negatives, the batch may hold several positives of fewer images
(d > 2 views).

$$\mathcal{L} = \frac{2}{n\,d(d - 1)} \sum_{i < j} \sum_{k=1}^{n} \operatorname{dist}\big(w_k^i, w_k^j\big), \qquad
w^i = W_{z^i} (z^i - \mu_{z^i}), \quad W_z^\top W_z = \Sigma_z^{-1}$$

dist is \(2 - 2 \cos\), the squared distance of the normalized vectors. \(W\) is the inverse of the Cholesky
factor of the covariance, and the gradient flows through it. Each view is whitened separately, in random
sub-batches. Each step draws them `splits_per_step` times, because the covariance of few samples is noisy.

Shapes: views v0 … v{d-1} (n, c, h, w) -> z (n, dim) of each; sub-batches (sub_batch_size, dim).

Requirements: sub-batches of more than dim rows, 2 dim in the paper. The batch size must be a multiple of the
sub-batch size.

Relations: without whitening the same loss collapses at once. Barlow Twins encourages decorrelation between
views; W-MSE enforces it within each view. BYOL and SimSiam avoid collapse with a stop-gradient.

Reference: Ermolov, Siarohin, Sangineto & Sebe, "Whitening for Self-Supervised Representation Learning", ICML
2021, arXiv:2007.06346.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import w_mse
from nearfar.similarity import ColorJitter, Compose, Crop, Flip, Grayscale, ImageViews, choose_views


@dataclass(frozen=True)
class WMSE(Recipe):
    """Whitening for self-supervised representation learning."""

    card = Card(
        title="W-MSE",
        paper="arXiv:2007.06346",
        year=2020,
        modality="image",
        similarity="data transformation",
        query="augmented image",
        positive="the other augmented views of the same image (d - 1 of them)",
        negative="none (each view's batch is whitened)",
        encoder="one, end to end",
        head="MLP with one hidden layer, whitening",
        score="cosine of whitened vectors",
        loss="squared distance of whitened, normalized vectors",
        equation=r"\mathcal{L} = \frac{2}{n\,d(d - 1)} \sum_{i < j} \sum_k \operatorname{dist}\big(w_k^i, w_k^j\big), \quad"
        r" w^i = W_{z^i} (z^i - \mu_{z^i}), \; W_z^\top W_z = \Sigma_z^{-1}",
        family="no negatives",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )
    limits = {  # noqa: RUF012
        "views_per_sample": (2.0, float("inf")),
        "sub_batch_size": (2.0, float("inf")),
        "covariance_shrinkage": (0.0, 1.0),
    }

    dim: int = 64
    """Dimension of the whitened space."""
    hidden_dim: int = 1024
    """Width of the head's hidden layer."""
    views_per_sample: int = 2
    """Number of views of each image, all positives of each other (d)."""
    sub_batch_size: int = 128
    """Number of rows that are whitened together."""
    splits_per_step: int = 1
    """Number of random splits into sub-batches at each step. Their losses are averaged."""
    covariance_shrinkage: float = 1e-3
    """Weight of the identity in the covariance, which keeps it invertible."""
    norm: HeadNorm = "batch"
    """Normalization in the head."""

    def similarity(self, net: Net) -> ImageViews:
        return ImageViews.repeat(choose_views(net.sizes, _views).pipelines[0], self.views_per_sample)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, self.hidden_dim, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        names = [f"v{i}" for i in range(self.views_per_sample)]
        z = net.head(net.encoder(torch.cat([x[v] for v in names]))).chunk(self.views_per_sample)
        return dict(zip(names, z, strict=True)) | {"slot": x["slot"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        views = [z[f"v{i}"] for i in range(self.views_per_sample)]
        # One random key for all pairs: every view is split into the same sub-batches.
        pairs = [
            w_mse(a, b, z["slot"], rng_key, self.sub_batch_size, self.splits_per_step, self.covariance_shrinkage)
            for a, b in itertools.combinations(views, 2)
        ]
        return torch.stack(pairs).mean()


def _views(size: int) -> ImageViews:
    return ImageViews.repeat(Compose(Crop(size, scale=(0.2, 1.0)), Flip(), ColorJitter(0.4, 0.4, 0.4, 0.1, prob=0.8), Grayscale(prob=0.1)))


paper = WMSE(views_per_sample=4), TrainConfig(
    data="cifar10", encoder="resnet18", batch_size=256, epochs=1000,
    optimizer="adamw", lr=3e-3, weight_decay=1e-6, warmup_ratio=0.003,
)  # fmt: skip

reported = {
    "CIFAR-10 linear, ResNet-18, 1000 epochs, d = 2": (91.55, "arXiv:2007.06346, table 1"),
    "CIFAR-10 linear, ResNet-18, 1000 epochs, d = 4": (91.99, "arXiv:2007.06346, table 1"),
}

tiny = WMSE(dim=16, hidden_dim=256, sub_batch_size=64), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

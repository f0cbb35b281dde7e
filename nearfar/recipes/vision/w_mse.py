r"""W-MSE: views agree after each has been whitened, and what is white cannot collapse.

Claim: the squared distance of positives is enough if their representations are first scattered by force: with mean 0
and covariance I over the batch. No negatives, no slow copy, no predictor; and since negatives are not needed, the batch
may hold several positives of fewer images (d > 2 views).

$$\mathcal{L} = \frac{2}{n\,d(d - 1)} \sum_{i < j} \sum_{k=1}^{n} \operatorname{dist}\big(w_k^i, w_k^j\big), \qquad
w^i = W_{z^i} (z^i - \mu_{z^i}), \quad W_z^\top W_z = \Sigma_z^{-1}$$

with dist \(2 - 2 \cos\), the squared distance of the normalised vectors. \(W\) comes from Cholesky's factor of the
covariance, through which the gradient flows. Each view is whitened by itself, in sub-batches that are drawn anew at
every step and, in each, `rounds` times, because the covariance of few samples is noisy.

Shapes: views v0 … v{d-1} (n, c, h, w) -> z (n, dim) of each; sub-batches (sub_batch, dim).

Requirements: sub-batches of more than dim rows, 2 dim in the paper; a batch of a multiple of them.

Relations: without whitening the same loss collapses at once. Barlow Twins asks softly, between views, for the
decorrelation that is enforced here within each; BYOL and SimSiam avoid collapse by what has no gradient.

Reference: Ermolov, Siarohin, Sangineto & Sebe, "Whitening for Self-Supervised Representation Learning", ICML 2021,
arXiv:2007.06346.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from nearfar.core import Card, Embedded, Key, Net, Recipe, Run, Sizes, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import w_mse
from nearfar.similarity import Augment, Compose, Crop, Flip, Grey, Jitter, views_for


@dataclass(frozen=True)
class WMSE(Recipe):
    """Whitening for Self-Supervised Representation Learning."""

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
        loss="squared distance of whitened, normalised vectors",
        equation=r"\mathcal{L} = \frac{2}{n\,d(d - 1)} \sum_{i < j} \sum_k \operatorname{dist}\big(w_k^i, w_k^j\big), \quad"
        r" w^i = W_{z^i} (z^i - \mu_{z^i}), \; W_z^\top W_z = \Sigma_z^{-1}",
    )
    limits = {"positives": (2.0, float("inf")), "sub_batch": (2.0, float("inf")), "eps": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 64
    """Width of the space that is whitened."""
    hidden: int = 1024
    """Width of the head's hidden layer."""
    positives: int = 2
    """Views of each image, all positives of each other (d)."""
    sub_batch: int = 128
    """Rows that are whitened together."""
    rounds: int = 1
    """How often a batch is cut into sub-batches at each step; the losses are averaged."""
    eps: float = 1e-3
    """Share of the identity in the covariance, which keeps it invertible."""
    norm: HeadNorm = "batch"
    """Normalisation in the head."""

    def similarity(self, net: Net) -> Augment:
        return Augment.repeat(views_for(net.sizes, _views).pipelines[0], self.positives)

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(encoder=encoder, head=mlp(encoder.dim, self.hidden, self.dim, norm=self.norm))

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        names = [f"v{i}" for i in range(self.positives)]
        z = net.head(net.encoder(torch.cat([x[v] for v in names]))).chunk(self.positives)
        return dict(zip(names, z, strict=True)) | {"slot": x["slot"]}

    def objective(self, net: Net, z: Embedded, key: Key) -> Tensor:
        views = [z[f"v{i}"] for i in range(self.positives)]
        # One key for all pairs: every view is cut into the same sub-batches.
        pairs = [w_mse(a, b, z["slot"], key, self.sub_batch, self.rounds, self.eps) for a, b in itertools.combinations(views, 2)]
        return torch.stack(pairs).mean()


def _views(size: int) -> Augment:
    return Augment.repeat(Compose(Crop(size, scale=(0.2, 1.0)), Flip(), Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), Grey(p=0.1)))


paper = WMSE(positives=4), Run(
    data="cifar10", encoder="resnet18", batch=256, epochs=1000,
    optimizer="adamw", lr=3e-3, weight_decay=1e-6, warmup=0.003,
)  # fmt: skip

reported = {
    "CIFAR-10 linear, ResNet-18, 1000 epochs, d = 2": (91.55, "arXiv:2007.06346, table 1"),
    "CIFAR-10 linear, ResNet-18, 1000 epochs, d = 4": (91.99, "arXiv:2007.06346, table 1"),
}

tiny = WMSE(dim=16, hidden=256, sub_batch=64), Run(data="digits", steps=300, batch=128, lr=2e-3)

r"""SwAV: predict the cluster of one view from another, with balanced clusters.

Claim: compare cluster assignments ("codes") of views, online, instead of pairs of samples. No negatives, no
memory of all samples and no clustering pass are needed. Many small crops are cheap views.

$$\mathcal{L} = \ell(z_t, q_s) + \ell(z_s, q_t), \qquad
\ell(z_t, q_s) = -\sum_k q_s^{(k)} \log p_t^{(k)}, \qquad
p_t^{(k)} = \frac{\exp(z_t^\top c_k/\tau)}{\sum_{k'} \exp(z_t^\top c_{k'}/\tau)}$$

$$Q = \operatorname*{arg\,max}_{Q \in \mathcal{Q}} \operatorname{tr}(Q^\top C^\top Z) + \varepsilon H(Q),
\qquad \mathcal{Q}: \text{all prototypes equally used}$$

Shapes: two large views and small ones (n, c, h, w) -> z (n, dim) unit vectors each; prototypes C (K, dim)
unit vectors; codes Q (n, K). The loss is the mean over the codes of both large views and all other views.

Requirements: more rows than prototypes, otherwise codes cannot be balanced. A queue of past embeddings joins
the batch when codes are computed, after a first part of the training. Prototypes are frozen at the beginning.

Relations: DeepCluster assigns clusters once an epoch and resets its classifier; SwAV assigns them in every
step by optimal transport. PCL combines clusters with negatives. BYOL predicts the other view, not its
cluster. SwAV is not InfoNCE over clusters: it has no negatives, and only balanced codes prevent collapse.

Reference: Caron, Misra, Mairal, Goyal, Bojanowski & Joulin, "Unsupervised Learning of Visual Features by
Contrasting Cluster Assignments", NeurIPS 2020, arXiv:2006.09882.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, Queue, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import sinkhorn, swapped_prediction
from nearfar.similarity import ImageViews, choose_views, swav_views


@dataclass(frozen=True)
class SwAV(Recipe):
    """Swapping assignments between views: online clustering with balanced codes."""

    card = Card(
        title="SwAV", paper="arXiv:2006.09882", year=2020, modality="image",
        similarity="natural clustering and data transformation",
        query="augmented image, its distribution over prototypes",
        positive="the code of another augmented view",
        negative="none (codes use all prototypes equally)",
        encoder="one, end to end",
        head="MLP with one hidden layer, then prototypes",
        score="dot product with prototypes / tau",
        loss="cross-entropy with swapped Sinkhorn codes",
        equation=r"\ell(z_t, q_s) = -\sum_k q_s^{(k)} \log \frac{\exp(z_t^\top c_k/\tau)}{\sum_{k'} \exp(z_t^\top c_{k'}/\tau)}",
        family="clustering", similarity_type=("natural clustering", "data transformation"), head_type=("projection", "quantization"),
    )  # fmt: skip
    limits = {  # noqa: RUF012
        "queue_size": (0.0, float("inf")), "queue_start_ratio": (0.0, 1.0), "prototype_freeze_ratio": (0.0, 1.0),
        "small_crops": (0.0, 32.0), "gray_prob": (0.0, 1.0)}  # fmt: skip
    dim: int = 128
    """Dimension of the space where views and prototypes are compared."""
    hidden_dim: int = 1024
    """Width of the head's hidden layer."""
    prototypes: int = 256
    """Number of prototypes, that is clusters (K)."""
    temperature: float = 0.1
    """Temperature of the predictions (tau in the equation)."""
    sinkhorn_regularization: float = 0.05
    """Softness of the codes (epsilon in the equation). If it is too large, all codes are alike."""
    sinkhorn_iterations: int = 3
    """Number of iterations of Sinkhorn's algorithm."""
    queue_size: int = 1024
    """Number of past embeddings of each large view that join the batch when codes are computed."""
    queue_start_ratio: float = 0.1
    """Share of the training after which the queue is used."""
    prototype_freeze_ratio: float = 0.01
    """Share of the training during which prototypes are frozen."""
    small_crop_size: int | None = None
    """Width and height of small crops in pixels. Default: 3/7 of the image, as in the paper."""
    small_crops: int = 4
    """Number of small crops. Small gray images have none."""
    norm: HeadNorm = "batch"
    """Normalization in the head."""
    gray_prob: float = 0.2
    """Probability that a view of a photograph is converted to grayscale."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, lambda size: swav_views(size, self.small_crop_size, self.small_crops, gray_prob=self.gray_prob))

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(
            encoder=encoder,
            head=mlp(encoder.dim, self.hidden_dim, self.dim, norm=self.norm),
            prototypes=nn.Parameter(F.normalize(torch.empty(self.prototypes, self.dim).normal_(), dim=1)),
            queues=nn.ModuleList(Queue(self.queue_size, self.dim) for _ in range(2)),
            progress=torch.zeros(()),
        )

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        """Encode all views. Views of the same size share one pass of the encoder."""
        views = [x[f"v{i}"] for i in range(sum(name.startswith("v") for name in x))]
        sizes = [list(group) for _, group in itertools.groupby(views, key=lambda view: view.shape[2:])]
        h = torch.cat([net.encoder(torch.cat(group)) for group in sizes])
        return {f"z{i}": z for i, z in enumerate(F.normalize(net.head(h), dim=1).chunk(len(views)))}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        c = torch.where(net.progress < self.prototype_freeze_ratio, net.prototypes.detach(), net.prototypes)
        scores = [z[f"z{i}"] @ c.T for i in range(len(z))]
        losses = []
        for s, queue in enumerate(net.queues):
            q = self.compute_codes(scores[s].detach(), queue.rows @ c.detach().T, net.progress)
            losses += [swapped_prediction(p, q, self.temperature).mean() for t, p in enumerate(scores) if t != s]
        return torch.stack(losses).mean()

    def compute_codes(
        self, scores: Float[Tensor, "n k"], queued: Float[Tensor, "m k"], progress: Float[Tensor, ""]
    ) -> Float[Tensor, "n k"]:
        """Compute balanced codes of the batch, later with the queue. Computing both is faster than a
        branch."""
        alone = sinkhorn(scores, self.sinkhorn_regularization, self.sinkhorn_iterations)
        joined = sinkhorn(torch.cat([scores, queued]), self.sinkhorn_regularization, self.sinkhorn_iterations)[: len(scores)]
        return torch.where(progress < self.queue_start_ratio, alone, joined)

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.prototypes.copy_(F.normalize(net.prototypes, dim=1))
        for s, queue in enumerate(net.queues if self.queue_size else ()):
            queue.push(z[f"z{s}"])
        net.progress.fill_(progress)


paper = SwAV(
    hidden_dim=2048, prototypes=3000, queue_size=0, prototype_freeze_ratio=1 / 800, small_crop_size=96, small_crops=6), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=4096, epochs=800,
    optimizer="lars", lr=4.8, weight_decay=1e-6, momentum=0.9, warmup_ratio=10 / 800,
)  # fmt: skip

reported = {
    "ImageNet linear top-1, ResNet-50, 800 epochs": (75.3, "arXiv:2006.09882, figure 2"),
    "ImageNet linear top-1, ResNet-50, 200 epochs, batch 256": (72.0, "arXiv:2006.09882, table 3"),
}

tiny = (
    SwAV(hidden_dim=128, prototypes=64, queue_size=256, prototype_freeze_ratio=0.0),
    TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3),
)

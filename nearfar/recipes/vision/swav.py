r"""SwAV: predict the cluster of one view from another view, while clusters are shared out evenly as they are computed.

Claim: instead of comparing pairs of samples, compare their cluster assignments ("codes") between views, online: no
negatives, no memory of all samples, no pass over the data to cluster them. Many small crops add views at little cost.

$$\mathcal{L} = \ell(z_t, q_s) + \ell(z_s, q_t), \qquad
\ell(z_t, q_s) = -\sum_k q_s^{(k)} \log p_t^{(k)}, \qquad
p_t^{(k)} = \frac{\exp(z_t^\top c_k/\tau)}{\sum_{k'} \exp(z_t^\top c_{k'}/\tau)}$$

$$Q = \operatorname*{arg\,max}_{Q \in \mathcal{Q}} \operatorname{tr}(Q^\top C^\top Z) + \varepsilon H(Q),
\qquad \mathcal{Q}: \text{all prototypes equally used}$$

Shapes: views (n, c, h, w), the first two large, the others small -> z (n, dim) unit vectors each; prototypes C
(K, dim) unit vectors; codes Q (n, K). The loss is the mean over codes of both large views and over all other views.

Requirements: more rows than prototypes, or codes cannot be even: a queue of earlier embeddings joins the batch when
codes are computed, once embeddings have settled. Prototypes stay as they were drawn at the very beginning.

Relations: DeepCluster assigns clusters once an epoch and resets its classifier, this one assigns them in every step by
optimal transport; PCL keeps the negatives beside its clusters; BYOL predicts the other view itself, not its cluster.
It has no negative samples and is no InfoNCE over clusters: even codes alone keep it from the constant solution.

Reference: Caron, Misra, Mairal, Goyal, Bojanowski & Joulin, "Unsupervised Learning of Visual Features by Contrasting
Cluster Assignments", NeurIPS 2020, arXiv:2006.09882.
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
    """Swapping Assignments between Views: online clustering with balanced codes."""

    card = Card(
        title="SwAV",
        paper="arXiv:2006.09882",
        year=2020,
        modality="image",
        similarity="natural clustering and data transformation",
        query="augmented image, its distribution over prototypes",
        positive="the code of another augmented view",
        negative="none (codes use all prototypes equally)",
        encoder="one, end to end",
        head="MLP with one hidden layer, then prototypes",
        score="dot product with prototypes / tau",
        loss="cross-entropy with swapped Sinkhorn codes",
        equation=r"\ell(z_t, q_s) = -\sum_k q_s^{(k)} \log \frac{\exp(z_t^\top c_k/\tau)}{\sum_{k'} \exp(z_t^\top c_{k'}/\tau)}",
    )

    limits = {  # noqa: RUF012
        "queue_size": (0.0, float("inf")), "queue_start_ratio": (0.0, 1.0), "prototype_freeze_ratio": (0.0, 1.0), "small_crops": (0.0, 32.0), "gray_prob": (0.0, 1.0),
    }  # fmt: skip

    dim: int = 128
    """Width of the space where views meet prototypes."""
    hidden_dim: int = 1024
    """Width of the head's hidden layer."""
    prototypes: int = 256
    """How many clusters (K)."""
    temperature: float = 0.1
    """Temperature of the predictions."""
    sinkhorn_regularization: float = 0.05
    """Softness of the codes (epsilon): too large, and all codes are alike."""
    sinkhorn_iterations: int = 3
    """How often Sinkhorn's algorithm evens the prototypes out."""
    queue_size: int = 1024
    """How many embeddings of earlier steps, of each large view, join the batch when codes are computed."""
    queue_start_ratio: float = 0.1
    """Share of the training after which the queue is used."""
    prototype_freeze_ratio: float = 0.01
    """Share of the training during which prototypes do not move."""
    small_crop_size: int | None = None
    """Pixels a side of the small crops. Default: 3/7 of the image, as in the paper."""
    small_crops: int = 4
    """How many small crops (small grey images have none)."""
    norm: HeadNorm = "batch"
    """Normalisation in the head."""
    gray_prob: float = 0.2
    """Share of the views of photographs that lose their colours."""

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
        """Views of one size are encoded together; the head sees them all."""
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
        """Even assignments of the batch, later on of batch and queue together. Both are computed: asking a GPU which to take costs more."""
        alone = sinkhorn(scores, self.sinkhorn_regularization, self.sinkhorn_iterations)
        joined = sinkhorn(torch.cat([scores, queued]), self.sinkhorn_regularization, self.sinkhorn_iterations)[: len(scores)]
        return torch.where(progress < self.queue_start_ratio, alone, joined)

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.prototypes.copy_(F.normalize(net.prototypes, dim=1))
        for s, queue in enumerate(net.queues if self.queue_size else ()):
            queue.push(z[f"z{s}"])
        net.progress.fill_(progress)


paper = SwAV(hidden_dim=2048, prototypes=3000, queue_size=0, prototype_freeze_ratio=1 / 800, small_crop_size=96, small_crops=6), TrainConfig(
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

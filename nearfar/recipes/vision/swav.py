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

from nearfar.core import Card, Embedded, Key, Net, Queue, Recipe, Run, Sizes, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import sinkhorn, swapped_prediction
from nearfar.similarity import Augment, swav_views, views_for


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
        "queue": (0.0, float("inf")), "queue_from": (0.0, 1.0), "frozen": (0.0, 1.0), "smalls": (0.0, 32.0), "grey": (0.0, 1.0),
    }  # fmt: skip

    dim: int = 128
    """Width of the space where views meet prototypes."""
    hidden: int = 1024
    """Width of the head's hidden layer."""
    prototypes: int = 256
    """How many clusters (K)."""
    tau: float = 0.1
    """Temperature of the predictions."""
    eps: float = 0.05
    """Softness of the codes (epsilon): too large, and all codes are alike."""
    rounds: int = 3
    """How often Sinkhorn's algorithm evens the prototypes out."""
    queue: int = 1024
    """How many embeddings of earlier steps, of each large view, join the batch when codes are computed."""
    queue_from: float = 0.1
    """Share of the training after which the queue is used."""
    frozen: float = 0.01
    """Share of the training during which prototypes do not move."""
    small: int | None = None
    """Pixels a side of the small crops. Default: 3/7 of the image, as in the paper."""
    smalls: int = 4
    """How many small crops (small grey images have none)."""
    norm: HeadNorm = "batch"
    """Normalisation in the head."""
    grey: float = 0.2
    """Share of the views of photographs that lose their colours."""

    def similarity(self, net: Net) -> Augment:
        return views_for(net.sizes, lambda size: swav_views(size, self.small, self.smalls, grey=self.grey))

    def build(self, sizes: Sizes, encoder) -> Net:
        return Net(
            encoder=encoder,
            head=mlp(encoder.dim, self.hidden, self.dim, norm=self.norm),
            prototypes=nn.Parameter(F.normalize(torch.empty(self.prototypes, self.dim).normal_(), dim=1)),
            queues=nn.ModuleList(Queue(self.queue, self.dim) for _ in range(2)),
            progress=torch.zeros(()),
        )

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        """Views of one size are encoded together; the head sees them all."""
        views = [x[f"v{i}"] for i in range(sum(name.startswith("v") for name in x))]
        sizes = [list(group) for _, group in itertools.groupby(views, key=lambda view: view.shape[2:])]
        h = torch.cat([net.encoder(torch.cat(group)) for group in sizes])
        return {f"z{i}": z for i, z in enumerate(F.normalize(net.head(h), dim=1).chunk(len(views)))}

    def objective(self, net: Net, z: Embedded, key: Key) -> Tensor:
        c = torch.where(net.progress < self.frozen, net.prototypes.detach(), net.prototypes)
        scores = [z[f"z{i}"] @ c.T for i in range(len(z))]
        losses = []
        for s, queue in enumerate(net.queues):
            q = self.codes(scores[s].detach(), queue.rows @ c.detach().T, net.progress)
            losses += [swapped_prediction(p, q, self.tau).mean() for t, p in enumerate(scores) if t != s]
        return torch.stack(losses).mean()

    def codes(self, scores: Float[Tensor, "n k"], queued: Float[Tensor, "m k"], progress: Float[Tensor, ""]) -> Float[Tensor, "n k"]:
        """Even assignments of the batch, later on of batch and queue together. Both are computed: asking a GPU which to take costs more."""
        alone = sinkhorn(scores, self.eps, self.rounds)
        joined = sinkhorn(torch.cat([scores, queued]), self.eps, self.rounds)[: len(scores)]
        return torch.where(progress < self.queue_from, alone, joined)

    def update(self, net: Net, z: Embedded, progress: float) -> None:
        net.prototypes.copy_(F.normalize(net.prototypes, dim=1))
        for s, queue in enumerate(net.queues if self.queue else ()):
            queue.push(z[f"z{s}"])
        net.progress.fill_(progress)


paper = SwAV(hidden=2048, prototypes=3000, queue=0, frozen=1 / 800, small=96, smalls=6), Run(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch=4096, epochs=800,
    optimizer="lars", lr=4.8, weight_decay=1e-6, momentum=0.9, warmup=10 / 800,
)  # fmt: skip

reported = {
    "ImageNet linear top-1, ResNet-50, 800 epochs": (75.3, "arXiv:2006.09882, figure 2"),
    "ImageNet linear top-1, ResNet-50, 200 epochs, batch 256": (72.0, "arXiv:2006.09882, table 3"),
}

tiny = SwAV(hidden=128, prototypes=64, queue=256, frozen=0.0), Run(data="digits", steps=300, batch=128, lr=2e-3)

r"""MoCo: a query finds its key in a dictionary that is large, because it is a queue, and consistent, because a slow
copy of the encoder fills it.

Claim: contrastive learning is dictionary look-up, and the dictionary need not be the batch. Keys of the last steps
stay usable as negatives if the network that made them changes slowly.

$$\mathcal{L}_q = -\log \frac{\exp(q \cdot k_+/\tau)}{\exp(q \cdot k_+/\tau) + \sum_{i=1}^{K} \exp(q \cdot k_i/\tau)},
\qquad \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q$$

Shapes: q, k (n, dim) unit vectors; queue (K, dim).

Requirements: K large against the batch, m near 1. The queue only evicts its oldest keys; it weights none.

Relations: SimCLR takes its negatives from the batch and backpropagates into both views; MoCo v2 adds SimCLR's MLP head
and stronger views; NPID keeps one stored key for every sample instead of a queue; BYOL keeps the slow copy and drops
the negatives.

Batch statistics: a query could recognise its key by the statistics of the batch that both were normalised in, and learn
nothing else. In the paper every GPU normalises its own images, and keys are shuffled between GPUs before they are encoded.
On one device the same is had by normalising in `groups`: queries in the batch's order, keys in one drawn anew in every
step; nets without batch statistics need none.

Reference: He, Fan, Wu, Xie & Girshick, "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020,
arXiv:1911.05722.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.core import Card, Ema, Embedded, Key, Net, Queue, Recipe, Run, Sizes, Views
from nearfar.heads import Normalise, mlp, split_batch_norm
from nearfar.losses import info_nce
from nearfar.scores import dot, matched
from nearfar.similarity import Augment, moco_v1_views, views_for


@dataclass(frozen=True)
class MoCo(Recipe):
    """Momentum Contrast: a queue of keys from a slowly following encoder."""

    card = Card(
        title="MoCo",
        paper="arXiv:1911.05722",
        year=2019,
        modality="image",
        similarity="data transformation",
        query="augmented image",
        positive="another augmented view, through the momentum encoder",
        negative="a queue of keys of earlier batches",
        encoder="query encoder end to end, key encoder by momentum",
        head="linear",
        score="dot product of unit vectors / tau",
        loss="InfoNCE",
        equation=r"\mathcal{L}_q = -\log \frac{\exp(q \cdot k_+/\tau)}{\exp(q \cdot k_+/\tau) + \sum_{i=1}^{K} \exp(q \cdot k_i/\tau)}",
    )

    limits = {"m": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 128
    """Width of the space where queries and keys are compared."""
    tau: float = 0.07
    """Temperature."""
    queue: int = 4096
    """How many keys the dictionary holds (K)."""
    m: float = 0.99
    """How slowly the key encoder follows: theta_k <- m theta_k + (1 - m) theta_q."""
    groups: int = 1
    """Groups of a view with batch statistics of their own, others for keys than for queries: shuffled batch norm (the paper: 8 GPUs)."""
    symmetric: bool = False
    """Each view is query once and key once, for twice the work; else the first asks and the second answers, as in the paper."""

    def similarity(self, net: Net) -> Augment:
        return views_for(net.sizes, moco_v1_views)

    def head(self, width: int) -> nn.Module:
        return mlp(width, self.dim)

    def build(self, sizes: Sizes, encoder) -> Net:
        query = nn.Sequential(encoder, self.head(encoder.dim), Normalise())
        if self.groups > 1:
            split_batch_norm(query, self.groups * (2 if self.symmetric else 1))
        return Net(encoder=encoder, query=query, key=Ema(query), queue=Queue(self.queue, self.dim))

    def embed(self, net: Net, x: Views, key: Key) -> Embedded:
        if not self.symmetric:
            return {"q": net.query(x["v0"]), "k": self.keys(net, x["v1"], x["slot"])}
        both = torch.cat([x["v0"], x["v1"]])  # through each encoder in one pass
        (q, q1), (k0, k) = net.query(both).chunk(2), self.keys(net, both, x["slot"]).chunk(2)
        return {"q": q, "k": k, "q1": q1, "k0": k0}

    def keys(self, net: Net, images: Tensor, slots: Tensor) -> Tensor:
        if self.groups == 1:
            return net.key(images)
        order = Key(0)("shuffle").bits(slots, columns=len(images) // len(slots)).T.flatten().argsort()
        k = net.key(images[order])
        return torch.empty_like(k).index_copy(0, order, k)

    def objective(self, net: Net, z: Embedded, key: Key) -> Tensor:
        loss = self.contrast(net, z["q"], z["k"], z, key)
        return (loss + self.contrast(net, z["q1"], z["k0"], z, key)) / 2 if self.symmetric else loss

    def contrast(self, net: Net, q: Tensor, k: Tensor, z: Embedded, key: Key) -> Tensor:
        """Queries against their keys and the queue."""
        return info_nce(matched(q, k, against=net.queue.rows, score=dot) / self.tau).mean()

    def update(self, net: Net, z: Embedded, progress: float) -> None:
        net.key.follow(net.query, self.m)
        for name in ("k", "k0") if self.symmetric else ("k",):
            net.queue.push(z[name])


paper = MoCo(queue=65536, m=0.999, groups=8), Run(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay="all", momentum=0.9, warmup=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 200 epochs": (60.6, "arXiv:1911.05722, table 1")}

tiny = MoCo(queue=512), Run(data="digits", steps=300, batch=128, lr=2e-3)

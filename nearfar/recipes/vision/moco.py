r"""MoCo: match each query with its key, against a queue of keys from a momentum encoder.

Claim: contrastive learning is dictionary look-up, and the dictionary can be larger than the batch. A queue
makes it large. A slowly changing encoder makes it consistent: the keys of past steps remain useful as
negatives.

$$\mathcal{L}_q = -\log \frac{\exp(q \cdot k_+/\tau)}{\exp(q \cdot k_+/\tau) + \sum_{i=1}^{K} \exp(q \cdot k_i/\tau)},
\qquad \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q$$

Shapes: q, k (n, dim) unit vectors; queue (K, dim).

Requirements: K large compared with the batch, m close to 1. The queue only drops its oldest keys; it does not
weight keys.

Relations: SimCLR takes its negatives from the batch and backpropagates into both views. MoCo v2 adds SimCLR's
MLP head and stronger views. NPID stores one key for every sample instead of a queue. BYOL keeps the momentum
encoder and drops the negatives.

Batch statistics: a query could recognize its key by shared batch statistics, and learn nothing else. In the
paper every GPU normalizes its own images, and keys are shuffled between GPUs before they are encoded. On one
device `batch_norm_groups` has the same effect: queries are normalized in groups in the order of the batch,
keys in groups of a new random order in every step. Networks without batch statistics need no groups.

Reference: He, Fan, Wu, Xie & Girshick, "Momentum Contrast for Unsupervised Visual Representation Learning",
CVPR 2020, arXiv:1911.05722.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.core import Card, Ema, Embeddings, Net, Queue, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import Normalize, mlp, split_batch_norm
from nearfar.losses import info_nce
from nearfar.scores import Scores, dot
from nearfar.similarity import ImageViews, choose_views, moco_v1_views


@dataclass(frozen=True)
class MoCo(Recipe):
    """Momentum Contrast: a queue of keys from a momentum encoder."""

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
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("projection",),
    )

    limits = {"ema_momentum": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 128
    """Dimension of the space where queries and keys are compared."""
    temperature: float = 0.07
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    queue_size: int = 4096
    """Number of keys in the queue (K)."""
    ema_momentum: float = 0.99
    """Momentum of the key encoder (m in the equation)."""
    batch_norm_groups: int = 1
    """Number of groups with separate batch statistics, shuffled for keys: shuffled batch norm. The paper has
    8 GPUs."""
    symmetric: bool = False
    """Whether each view is the query once and the key once, at twice the cost. Otherwise the first view is
    the query, as in the paper."""

    def similarity(self, net: Net) -> ImageViews:
        return choose_views(net.sizes, moco_v1_views)

    def build_head(self, width: int) -> nn.Module:
        return mlp(width, self.dim)

    def build(self, sizes: Sizes, encoder) -> Net:
        query = nn.Sequential(encoder, self.build_head(encoder.dim), Normalize())
        if self.batch_norm_groups > 1:
            split_batch_norm(query, self.batch_norm_groups * (2 if self.symmetric else 1))
        return Net(encoder=encoder, query=query, key=Ema(query), queue=Queue(self.queue_size, self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        if not self.symmetric:
            return {"q": net.query(x["v0"]), "k": self.encode_keys(net, x["v1"], x["slot"])}
        both = torch.cat([x["v0"], x["v1"]])  # one pass through each encoder
        (q, q1), (k0, k) = net.query(both).chunk(2), self.encode_keys(net, both, x["slot"]).chunk(2)
        return {"q": q, "k": k, "q1": q1, "k0": k0}

    def encode_keys(self, net: Net, images: Tensor, slots: Tensor) -> Tensor:
        """Encode images with the key encoder, with shuffled batch statistics if there are groups."""
        if self.batch_norm_groups == 1:
            return net.key(images)
        order = RandomKey(0)("shuffle").bits(slots, columns=len(images) // len(slots)).T.flatten().argsort()
        k = net.key(images[order])
        return torch.empty_like(k).index_copy(0, order, k)

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        loss = self.contrastive_loss(net, z["q"], z["k"], z, rng_key)
        return (loss + self.contrastive_loss(net, z["q1"], z["k0"], z, rng_key)) / 2 if self.symmetric else loss

    def contrastive_loss(self, net: Net, q: Tensor, k: Tensor, z: Embeddings, rng_key: RandomKey) -> Tensor:
        """Compute InfoNCE of the queries with their keys and the queue."""
        return info_nce(Scores.from_matched(q, k, negatives=net.queue.rows, score=dot) / self.temperature).mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.key.follow(net.query, self.ema_momentum)
        for name in ("k", "k0") if self.symmetric else ("k",):
            net.queue.push(z[name])


paper = MoCo(queue_size=65536, ema_momentum=0.999, batch_norm_groups=8), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 200 epochs": (60.6, "arXiv:1911.05722, table 1")}

tiny = MoCo(queue_size=512), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

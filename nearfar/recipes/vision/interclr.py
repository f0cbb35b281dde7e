r"""InterCLR: MoCo v2 plus a contrast between different images of the same cluster.

Claim: invariance between views of one image misses the features that images of a class share. Pairs of
different images, found by online clustering during training, add these features. Such pairs need a softer
positive and harder negatives than views.

$$\mathcal{L} = \lambda \mathcal{L}_{intra} + (1 - \lambda) \mathcal{L}_{inter}, \qquad
\mathcal{L}_{inter} = -\log \frac{\exp((q \cdot v_+ - m)/\tau)}{\exp((q \cdot v_+ - m)/\tau) + \sum_{v_-} \exp(q \cdot v_-/\tau)}$$

\(\mathcal{L}_{intra}\) is MoCo v2's loss. \(v_+\) is drawn from the bank among the images with the query's
pseudo-label, the query's own image included. \(v_-\) is drawn from the `negative_pool_size` images of other
labels that are nearest to q ("semi-hard"). The margin m is negative: pairs that may be wrong need not be as
close as views. After each step the bank stores the keys of the batch, their labels become the nearest
centroids, and centroids stay the means of their members.

Shapes: q, k (n, dim) unit vectors; queue (K, dim); bank (N, dim), labels (N,); centroids (clusters, dim).

Requirements: memory for the bank. Labels from the first step on: k-means clusters all images before training.
Negatives are drawn with replacement. A centroid without members stays in place until it gets one; the
authors' code splits the largest cluster instead.

Relations: `moco-v2` is the case \(\lambda = 1\). `pcl` clusters once an epoch and contrasts with centers.
`local-aggregation` pulls a sample to all close neighbors at once. `swav` has neither a bank nor negatives.

Reference: Xie, Zhan, Liu, Ong & Loy, "Delving into Inter-Image Invariance for Unsupervised Visual
Representations", IJCV 2022, arXiv:2008.11702.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import Embeddings, MemoryBank, Net, RandomKey, Sizes, TrainConfig, Views
from nearfar.core.kmeans import check_num_clusters, kmeans
from nearfar.losses import info_nce
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.scores import Scores


@dataclass(frozen=True)
class InterCLR(MoCoV2):
    """Momentum Contrast with pairs of different images in addition to pairs of views."""

    card = dataclasses.replace(
        MoCoV2.card,
        title="InterCLR",
        paper="arXiv:2008.11702",
        similarity="natural clustering and data transformation",
        query="augmented image",
        positive="another augmented view, through the momentum encoder, and an image with the same pseudo-label",
        negative="a queue of keys, and near images with other pseudo-labels",
        encoder="query encoder end to end, key encoder by momentum; memory bank of keys",
        loss="InfoNCE between views and, with a margin, between images",
        equation=r"\mathcal{L} = \lambda \mathcal{L}_{intra} - (1 - \lambda) \log"
        r"\frac{\exp((q \cdot v_+ - m)/\tau)}{\exp((q \cdot v_+ - m)/\tau) + \sum_{v_-} \exp(q \cdot v_-/\tau)}",
        similarity_type=("natural clustering", "data transformation"),
    )

    limits = {**MoCoV2.limits, "view_pair_weight": (0.0, 1.0), "margin": (-2.0, 2.0)}  # noqa: RUF012

    clusters: int = 100
    """Number of pseudo-labels."""
    view_pair_weight: float = 0.75
    """Weight of the pairs of views against the pairs of images (lambda in the equation)."""
    margin: float = -0.5
    """Margin subtracted from the score of a pair of images (m). Negative values relax these pairs."""
    negative_pool_size: int = 512
    """Number of nearest images with other labels from which negatives are drawn."""
    negatives: int = 128
    """Number of negatives drawn for each query."""

    def build(self, sizes: Sizes, encoder) -> Net:
        check_num_clusters(self.clusters, sizes["n"])
        net = super().build(sizes, encoder)
        net.bank, net.labels = MemoryBank(sizes["n"], self.dim), MemoryBank(sizes["n"], dtype=torch.long)
        net.centroids, net.members = MemoryBank(self.clusters, self.dim), MemoryBank(self.clusters)
        return net

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        """Cluster all images before the first step. Later each step updates the labels of its batch."""
        if epoch == 0:
            v = encode_all("key").to(net.bank.rows.device)
            found = kmeans(v, self.clusters, rng_key("kmeans"))
            net.bank.put(slice(None), v)
            net.labels.put(slice(None), found.cluster_ids)
            net.centroids.put(slice(None), F.one_hot(found.cluster_ids, self.clusters).to(v).T @ v)
            net.members.put(slice(None), torch.bincount(found.cluster_ids, minlength=self.clusters))
            net.centroids.put(slice(None), net.centroids.rows / net.members.rows.clamp_min(1)[:, None])
        return ()

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return super().embed(net, x, rng_key) | {"id": x["id"], "slot": x["slot"]}

    def contrastive_loss(self, net: Net, q: Tensor, k: Tensor, z: Embeddings, rng_key: RandomKey) -> Tensor:
        intra = super().contrastive_loss(net, q, k, z, rng_key)
        return self.view_pair_weight * intra + (1 - self.view_pair_weight) * self.inter_image_loss(net, q, z, rng_key)

    def inter_image_loss(self, net: Net, q: Tensor, z: Embeddings, rng_key: RandomKey) -> Tensor:
        """Compute InfoNCE between the queries and bank images of the same cluster."""
        labels = net.labels[z["id"]]
        positive = net.bank[pick_same_label(net.labels.rows, labels, rng_key("positive").uniform(z["slot"]))]
        other = net.labels.rows != labels[:, None]
        near = (q.detach() @ net.bank.rows.T).where(other, -torch.inf).topk(min(self.negative_pool_size, len(net.bank)), dim=1).indices
        drawn = near.gather(1, rng_key("negatives").integers(z["slot"], near.shape[1], self.negatives))
        scores = [(q * positive).sum(1, keepdim=True) - self.margin, torch.einsum("nd,nkd->nk", q, net.bank[drawn])]
        sign = -other.gather(1, drawn).to(torch.int8)  # 0: same label, not a candidate
        nothing = q.new_empty(len(q), 0)
        own_sign = torch.cat([torch.ones_like(sign[:, :1]), sign], 1)
        return info_nce(Scores(nothing, nothing[:0], private_scores=torch.cat(scores, 1), private_signs=own_sign) / self.temperature).mean()

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        super().update(net, z, progress)
        before, after = net.labels[z["id"]], (z["k"] @ net.centroids.rows.T).argmax(1)
        gone, come = (F.one_hot(at, self.clusters).to(z["k"]) for at in (before, after))
        sums = net.centroids.rows * net.members.rows[:, None] + come.T @ z["k"] - gone.T @ net.bank[z["id"]]
        members = net.members.rows + come.sum(0) - gone.sum(0)
        net.centroids.put(slice(None), torch.where(members[:, None] > 0, sums / members.clamp_min(1)[:, None], net.centroids.rows))
        net.members.put(slice(None), members)
        net.bank.put(z["id"], z["k"])
        net.labels.put(z["id"], after)


def pick_same_label(labels: Int[Tensor, " m"], wanted: Int[Tensor, " n"], position: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Pick for each row the sample at `position`, in [0, 1), among samples with the label."""
    ordered, order = labels.sort(stable=True)
    first, end = (torch.searchsorted(ordered, wanted, right=right) for right in (False, True))
    return order[first + (position * (end - first)).long().clamp_max(end - first - 1)]


paper = InterCLR(
    queue_size=65_536, ema_momentum=0.999, batch_norm_groups=8, clusters=10_000, negative_pool_size=128_000, negatives=16_384
), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = (
    InterCLR(queue_size=512, clusters=40, negative_pool_size=256, negatives=64),
    TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3),
)

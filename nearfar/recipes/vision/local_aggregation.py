r"""Local aggregation: pull close neighbors nearer and push other neighbors away.

Claim: instance discrimination pushes all samples apart, and clustering forces all samples into clusters of
one size. Local aggregation compares close neighbors, which share a cluster with the sample, with background
neighbors. Both are found again as the space changes. Soft clusters of several sizes emerge.

$$\mathcal{L}_i = -\log \frac{P(C_i \cap B_i \mid v_i)}{P(B_i \mid v_i)}, \qquad
P(A \mid v) = \sum_{j \in A} P(j \mid v), \quad P(j \mid v) = \frac{\exp(\bar v_j^\top v/\tau)}{\sum_{l=1}^N \exp(\bar v_l^\top v/\tau)}$$

$$B_i = k \text{ nearest of all } \bar v_j \text{ to } v_i, \qquad
C_i = \bigcup_{h=1}^H \{j : g_h(j) = g_h(i)\}, \qquad \bar v_i \leftarrow (1 - t)\, \bar v_i + t\, v_i \text{ to unit length}$$

\(g_h\) is the h-th of H k-means clusterings of the bank \(\bar v\), repeated before every epoch. The
partition function cancels.

Shapes: view (n, c, h, w) -> v (n, dim) unit vectors; bank (N, dim); clusters (N, H); neighbors (n, k).

Requirements: a space worth clustering: the first epochs are instance discrimination, as in the paper. A
sample without a close neighbor among its k nearest has no loss.

Relations: `instance-discrimination-npid` is the warm-up, and the case C_i = {i}, B_i = all samples. `pcl`
pulls samples to the centers of clusters, `deepcluster` classifies into them. In local aggregation clusters
only define which neighbors are close. The t of the paper is 1 - `ema_momentum`.

Reference: Zhuang, Zhai & Yamins, "Local Aggregation for Unsupervised Learning of Visual Embeddings", ICCV
2019, arXiv:1903.12355.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nearfar.core import Embeddings, MemoryBank, Net, RandomKey, Sizes, TrainConfig
from nearfar.core.kmeans import check_num_clusters, kmeans
from nearfar.losses import local_aggregation
from nearfar.recipes.vision.instance_discrimination_npid import NPID


@dataclass(frozen=True)
class LocalAggregation(NPID):
    """Local aggregation in a memory bank: close against background neighbors."""

    card = dataclasses.replace(
        NPID.card,
        title="Local Aggregation",
        paper="arXiv:1903.12355",
        year=2019,
        similarity="natural clustering",
        positive="neighbors in the memory bank that share a cluster",
        negative="the other neighbors in the memory bank",
        loss="-log of the close neighbors' share of the neighborhood; the softmax over instances at first",
        equation=r"\mathcal{L}_i = -\log \frac{P(C_i \cap B_i \mid v_i)}{P(B_i \mid v_i)}",
        similarity_type=("natural clustering",),
    )

    limits = {**NPID.limits, "aggregate_from_epoch": (0.0, float("inf"))}  # noqa: RUF012

    temperature: float = 0.07
    """Temperature (tau in the equation). Lower values give more weight to the nearest negatives."""
    clusters: int = 100
    """Number of clusters in each clustering (m in the paper)."""
    clusterings: int = 3
    """Number of clusterings (H). Close neighbors share a cluster in any of them."""
    background_neighbors: int = 256
    """Number of background neighbors (k), limited to the size of the bank."""
    aggregate_from_epoch: int = 10
    """First epoch with local aggregation, counted from 0. Earlier epochs use instance discrimination."""

    def build(self, sizes: Sizes, encoder) -> Net:
        check_num_clusters(self.clusters, sizes["n"])
        net = super().build(sizes, encoder)
        net.labels = MemoryBank(sizes["n"], self.clusterings, dtype=torch.long)
        net.register_buffer("aggregating", torch.zeros((), dtype=torch.bool))
        return net

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        if epoch >= self.aggregate_from_epoch:
            found = [kmeans(net.bank.rows, self.clusters, rng_key("kmeans", h)).cluster_ids for h in range(self.clusterings)]
            net.labels.put(slice(None), torch.stack(found, dim=1))
            net.aggregating.fill_(True)
        return ()

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        if not net.aggregating:
            return super().objective(net, z, rng_key)
        background, close = self.find_neighborhood(net, z["f"].detach(), z["id"])
        return local_aggregation(z["f"], net.bank[background], close, self.temperature).mean()

    def find_neighborhood(self, net: Net, v: Tensor, ids: Tensor) -> tuple[Int[Tensor, "n k"], Bool[Tensor, "n k"]]:
        """Return the background neighbors B_i (n, k) and a mask of the close neighbors C_i."""
        background = (v @ net.bank.rows.T).topk(min(self.background_neighbors, len(net.bank)), dim=1).indices
        return background, (net.labels[background] == net.labels[ids][:, None]).any(-1)


paper = LocalAggregation(clusters=30_000, background_neighbors=4096, negatives=4096, proximal_weight=0.0), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=128, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, momentum=0.9, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {}

tiny = (
    LocalAggregation(clusters=64, background_neighbors=128, aggregate_from_epoch=8),
    TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3),
)

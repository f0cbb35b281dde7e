r"""PCL: contrast each query with other views and with cluster centers at several scales.

Claim: instance discrimination treats semantically similar samples as negatives. Prototypes as latent
variables solve this problem: expectation-maximization alternates between finding prototypes by clustering and
pulling samples towards them.

$$\mathcal{L} = \sum_{i=1}^n -\left( \log \frac{\exp(v_i \cdot v'_i/\tau)}{\sum_{j=0}^r \exp(v_i \cdot v'_j/\tau)}
+ \frac1M \sum_{m=1}^M \log \frac{\exp(v_i \cdot c_s^m/\phi_s^m)}{\sum_{j=0}^r \exp(v_i \cdot c_j^m/\phi_j^m)} \right),
\qquad \phi = \frac{\sum_{z=1}^Z \lVert v'_z - c \rVert_2}{Z \log(Z + \alpha)}$$

E-step: k-means over the momentum features \(v'\) of all samples, before every epoch. M-step: the loss above.

Shapes: q, k (n, dim) unit vectors; queue (K, dim); for each clustering m prototypes (k_m, dim),
concentrations phi (k_m,) and the clusters of the samples (N,).

Requirements: features worth clustering: the first epochs have no prototypes (all are zero, which adds the
constant \(\log k_m\) and no gradient). All k_m prototypes are candidates. The paper draws r of them, because
its k_m is large.

Relations: MoCo v2 is the loss without the second term. SwAV learns its prototypes and has no negatives.
DeepCluster learns a classifier into its clusters. Local aggregation uses clusters to choose neighbors, not as
vectors to compare with.

Reference: Li, Zhou, Xiong & Hoi, "Prototypical Contrastive Learning of Unsupervised Representations", ICLR
2021, arXiv:2005.04966.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Embeddings, MemoryBank, Net, RandomKey, Sizes, TrainConfig, Views
from nearfar.core.kmeans import check_num_clusters, kmeans
from nearfar.losses import estimate_concentrations, proto_nce
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.scores import Scores, dot


@dataclass(frozen=True)
class PCL(MoCoV2):
    """Prototypical contrastive learning: Momentum Contrast with instances and cluster centers."""

    card = dataclasses.replace(
        MoCoV2.card,
        title="PCL",
        paper="arXiv:2005.04966",
        similarity="natural clustering and data transformation",
        query="augmented image",
        positive="another augmented view, through the momentum encoder, and the query's prototypes",
        negative="a queue of keys of earlier batches, and all other prototypes",
        score="dot product of unit vectors / tau, or / the prototype's concentration",
        loss="ProtoNCE",
        equation=r"\mathcal{L}_i = \mathcal{L}^{\text{InfoNCE}}_i - \frac1M \sum_{m=1}^M \log"
        r"\frac{\exp(v_i \cdot c_s^m/\phi_s^m)}{\sum_j \exp(v_i \cdot c_j^m/\phi_j^m)}",
        similarity_type=("natural clustering", "data transformation"),
    )

    limits = {**MoCoV2.limits, "cluster_from_epoch": (0.0, float("inf")), "concentration_smoothing": (0.0, float("inf"))}  # noqa: RUF012

    clusters: tuple[int, ...] = (50, 100, 200)
    """Number of prototypes of each clustering (k_m)."""
    cluster_from_epoch: int = 20
    """First epoch with prototypes, counted from 0."""
    concentration_smoothing: float = 10.0
    """Smoothing of the concentration of small clusters (alpha in the equation)."""

    def build(self, sizes: Sizes, encoder) -> Net:
        net = super().build(sizes, encoder)
        prototypes, phi = [MemoryBank(k, self.dim) for k in self.clusters], [MemoryBank(k) for k in self.clusters]
        for widths in phi:
            check_num_clusters(len(widths), sizes["n"])
            widths.rows.fill_(self.temperature)
        labels = [MemoryBank(sizes["n"], dtype=torch.long) for _ in self.clusters]
        net.prototypes, net.phi, net.labels = map(nn.ModuleList, (prototypes, phi, labels))
        return net

    def refresh(self, net: Net, data: Any, encode_all: Callable[..., Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        """Run the E-step: cluster the momentum features and estimate concentrations."""
        if epoch >= self.cluster_from_epoch:
            v = encode_all("key").to(net.queue.rows.device)  # momentum features of samples without augmentation
            for prototypes, phi, labels in zip(net.prototypes, net.phi, net.labels, strict=True):
                found = kmeans(v, len(prototypes), rng_key("kmeans", len(prototypes)))
                prototypes.put(slice(None), F.normalize(found.centers, dim=1))
                phi.put(
                    slice(None),
                    estimate_concentrations(v, found.centers, found.cluster_ids, self.temperature, self.concentration_smoothing),
                )
                labels.put(slice(None), found.cluster_ids)
        return ()

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return super().embed(net, x, rng_key) | {"id": x["id"]}

    def contrastive_loss(self, net: Net, q: Tensor, k: Tensor, z: Embeddings, rng_key: RandomKey) -> Tensor:
        """Compute the loss of the M-step."""
        instances = Scores.from_matched(q, k, negatives=net.queue.rows, score=dot) / self.temperature
        clusterings = [(c.rows, phi.rows, at[z["id"]]) for c, phi, at in zip(net.prototypes, net.phi, net.labels, strict=True)]
        return proto_nce(instances, q, clusterings).mean()


paper = PCL(clusters=(25_000, 50_000, 100_000), queue_size=16_384, ema_momentum=0.999), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 200 epochs": (67.6, "arXiv:2005.04966, table 3 (PCL v2)")}

tiny = PCL(queue_size=512, clusters=(10, 20, 40), cluster_from_epoch=5), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

r"""MoCHi: MoCo v2 with synthetic hard negatives, mixed from the hardest keys of the queue.

Claim: late in training most negatives of a queue are easy, and only few have a gradient. Points between two
of a query's hardest negatives, and between the query and one of them, are harder than any existing negative.
They cost no forward pass. Each query gets s points of the first kind and s' of the second.

$$h_k = \frac{\alpha_k n_i + (1 - \alpha_k) n_j}{\lVert \alpha_k n_i + (1 - \alpha_k) n_j \rVert}, \quad
h'_k = \frac{\beta_k q + (1 - \beta_k) n_j}{\lVert \beta_k q + (1 - \beta_k) n_j \rVert}, \qquad
\alpha_k \in (0, 1), \; \beta_k \in (0, \tfrac12), \; n_i, n_j \in \tilde Q^N$$

\(\tilde Q^N\) are the N keys of the queue with the largest \(q \cdot n\). The loss is MoCo's, with the
synthetic negatives among the negatives.

Shapes: q, k (n, dim) unit vectors; queue (K, dim); the synthetic negatives of each query (n, s + s', dim).

Requirements: no gradient flows into the mixtures. Mixing begins after a first part of the training, when the
queue holds useful keys. Until then the synthetic negatives are masked out.

Relations: without mixtures this is MoCo v2. Robinson et al. weight existing negatives by hardness instead of
creating new ones. beta below one half keeps h' closer to its negative than to the query. Mixup mixes inputs
and labels. MoCHi mixes embeddings, and all mixtures are negatives.

Reference: Kalantidis, Sariyildiz, Pion, Weinzaepfel & Larlus, "Hard Negative Mixing for Contrastive
Learning", NeurIPS 2020, arXiv:2010.01028.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nearfar.core import Embeddings, Net, RandomKey, Sizes, TrainConfig, Views
from nearfar.losses import add_negatives, info_nce, mine_hardest_negatives, mix_negatives, mix_query
from nearfar.recipes.vision.moco_v2 import MoCoV2
from nearfar.scores import Scores, dot


@dataclass(frozen=True)
class MoCHi(MoCoV2):
    """Mixing of contrastive hard negatives: synthetic negatives for each query."""

    card = dataclasses.replace(
        MoCoV2.card,
        title="MoCHi",
        paper="arXiv:2010.01028",
        negative="a queue of keys of earlier batches, and mixtures of the hardest of them with each other and with the query",
        equation=r"h_k \propto \alpha_k n_i + (1 - \alpha_k) n_j, \quad h'_k \propto \beta_k q + (1 - \beta_k) n_j, \; \beta_k < \tfrac12",
    )
    limits: ClassVar = {
        **MoCoV2.limits,
        "mixed_negatives": (0.0, float("inf")),
        "query_mixed_negatives": (0.0, float("inf")),
        "mixing_start_ratio": (0.0, 1.0),
    }

    hardest_keys: int = 1024
    """Number of hardest keys of the queue from which mixtures are drawn (N)."""
    mixed_negatives: int = 512
    """Mixtures of two hard keys for each query (s). 0: none."""
    query_mixed_negatives: int = 256
    """Mixtures of the query and a hard key (s'). 0: none."""
    mixing_start_ratio: float = 0.1
    """Share of the training before mixing begins."""

    def build(self, sizes: Sizes, encoder) -> Net:
        net = super().build(sizes, encoder)
        net.register_buffer("mixes", torch.tensor(float(self.mixing_start_ratio == 0)))
        return net

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return super().embed(net, x, rng_key) | {"slot": x["slot"]}

    def contrastive_loss(self, net: Net, q: Tensor, k: Tensor, z: Embeddings, rng_key: RandomKey) -> Tensor:
        queue, slots = net.queue.rows, z["slot"]
        S = Scores.from_matched(q, k, negatives=queue, score=dot)
        hard = mine_hardest_negatives(S, self.hardest_keys)
        h = [mix_negatives(queue, hard, self.mixed_negatives, rng_key("h"), slots)]
        if self.query_mixed_negatives:
            h.append(mix_query(q, queue, hard, self.query_mixed_negatives, rng_key("h'"), slots))
        return info_nce(add_negatives(S, torch.cat(h, 1) * net.mixes) / self.temperature).mean()  # zero vectors are ignored

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        super().update(net, z, progress)
        net.mixes.fill_(float(progress >= self.mixing_start_ratio))


paper = MoCHi(queue_size=65536, ema_momentum=0.999, mixing_start_ratio=0.075), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet linear top-1, ResNet-50, 200 epochs (MoCo v2: 67.9)": (68.0, "arXiv:2010.01028, table 2")}

tiny = (
    MoCHi(queue_size=512, hardest_keys=64, mixed_negatives=32, query_mixed_negatives=16),
    TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3),
)

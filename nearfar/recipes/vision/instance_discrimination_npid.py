r"""NPID: every image is a class of its own, and the classes' weights are what the network said of the images before.

Claim: similarity between instances, learned by telling all of them apart, makes classes emerge that nobody labelled.
A memory bank of one vector for each sample replaces a classifier with as many weights, so that nothing has to be learned
but the representation.

$$P(i \mid f) = \frac{\exp(v_i^\top f/\tau)}{\sum_{j=1}^N \exp(v_j^\top f/\tau)}, \qquad
\mathcal{L}_i = -\log P(i \mid f_i) + \lambda \lVert f_i - v_i \rVert_2^2, \qquad
v_i \leftarrow \frac{m v_i + (1 - m) f_i}{\lVert \cdot \rVert_2}$$

With `negatives`, noise-contrastive estimation stands in for the softmax: tell v_i from that many uniformly drawn v_j,

$$-\log h(i, f_i) - M\,\mathbb{E}_{j \sim U} \log(1 - h(j, f_i)), \qquad h(i, f) = \frac{P(i \mid f)}{P(i \mid f) + M/N}$$

where the sum in P is N/M times that over the drawn, and gets no gradient. The paper estimates it in the first batches and keeps
it; here every step estimates its own: beside one that is too small all vectors run from their common direction for ever.

Shapes: view (n, c, h, w) -> f (n, dim) unit vectors; bank V (N, dim) unit vectors.

Requirements: memory for the bank, N dim floats. The exact softmax is the default: a batch against the bank is one matrix
product, small beside the encoder up to millions of samples; it needs no estimate of the partition function; and the paper
has it ahead on CIFAR-10 (80.8 against 80.4 with 4096 negatives). A sample is seen once an epoch: the proximal term keeps
its vector from jumping in between.

Relations: MoCo replaces the bank by a queue of a slow encoder's keys; SimCLR replaces it by the batch's other views;
exemplar CNNs learn a weight for each class; local aggregation draws near neighbours in the same bank together. The noise
contrast is the binary one, and the proximal term a difference of two iterates, no penalty on norms.

Reference: Wu, Xiong, Yu & Lin, "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", CVPR 2018,
arXiv:1805.01978.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, MemoryBank, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import Normalize, mlp
from nearfar.losses import estimate_log_partition, instance_nce, instance_softmax, proximal_penalty
from nearfar.scores import Scores, dot
from nearfar.similarity import ImageViews, choose_views, moco_v1_views


@dataclass(frozen=True)
class NPID(Recipe):
    """Non-Parametric Instance Discrimination with a memory bank."""

    card = Card(
        title="NPID",
        paper="arXiv:1805.01978",
        year=2018,
        modality="image",
        similarity="data transformation",
        query="augmented image",
        positive="the same image in the memory bank",
        negative="all other images in the memory bank, or some of them",
        encoder="one, end to end; keys by its own past",
        head="linear",
        score="dot product of unit vectors / tau",
        loss="non-parametric softmax (or its NCE) with a proximal term",
        equation=r"\mathcal{L}_i = -\log \frac{\exp(v_i^\top f_i/\tau)}{\sum_{j=1}^N \exp(v_j^\top f_i/\tau)}"
        r"+ \lambda \lVert f_i - v_i \rVert_2^2",
    )

    limits = {"ema_momentum": (0.0, 1.0), "proximal_weight": (0.0, float("inf"))}  # noqa: RUF012

    dim: int = 128
    """Width of the space where images are told apart."""
    temperature: float = 0.1
    """Temperature."""
    ema_momentum: float = 0.5
    """How much a stored vector keeps of itself when its image is seen again."""
    proximal_weight: float = 1.0
    """Weight of the proximal term (lambda)."""
    negatives: int | None = None
    """How many of the bank are drawn as noise (M); none: the exact softmax over the whole bank."""

    def similarity(self, net: Net) -> ImageViews:
        """Training uses the first view; the second is there for what is measured between views."""
        return choose_views(net.sizes, moco_v1_views)

    def build(self, sizes: Sizes, encoder) -> Net:
        bank = MemoryBank(sizes["n"], self.dim)
        bank.put(slice(None), F.normalize(torch.empty(sizes["n"], self.dim).normal_(), dim=1))
        return Net(encoder=encoder, query=nn.Sequential(encoder, mlp(encoder.dim, self.dim), Normalize()), bank=bank)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"f": net.query(x["v0"]), "id": x["id"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        told_apart = self.softmax_loss(net, z) if self.negatives is None else self.noise_contrastive_loss(net, z, self.negatives, rng_key)
        return (told_apart + self.proximal_weight * proximal_penalty(z["f"], net.bank[z["id"]])).mean()

    def softmax_loss(self, net: Net, z: Embeddings) -> Float[Tensor, " n"]:
        return instance_softmax(z["f"], net.bank.rows, z["id"], self.temperature)

    def noise_contrastive_loss(self, net: Net, z: Embeddings, num_negatives: int, rng_key: RandomKey) -> Float[Tensor, " n"]:
        noise = net.bank[rng_key("noise").integers(torch.arange(num_negatives, device=z["f"].device), len(net.bank))]
        scores = Scores.from_matched(z["f"], net.bank[z["id"]], negatives=noise, score=dot) / self.temperature
        return instance_nce(scores, len(net.bank), num_negatives, estimate_log_partition(scores, len(net.bank)).detach())

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.bank.put(z["id"], F.normalize(self.ema_momentum * net.bank[z["id"]] + (1 - self.ema_momentum) * z["f"], dim=1))


paper = NPID(temperature=0.07, negatives=4096), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=200,
    optimizer="sgd", lr=0.03, weight_decay=1e-4, decay_params="all", momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "CIFAR-10 kNN, ResNet-18, exact softmax": (80.8, "arXiv:1805.01978, table 1"),
    "CIFAR-10 kNN, ResNet-18, 4096 negatives": (80.4, "arXiv:1805.01978, table 1"),
    "ImageNet linear top-1, ResNet-50": (54.0, "arXiv:1805.01978, table 2"),
}

tiny = NPID(), TrainConfig(data="digits", steps=300, batch_size=128, lr=2e-3)

r"""DeepCluster: alternate between clustering the features and classifying into the clusters.

Claim: even the features of a random convolutional network let k-means find useful clusters. A network trained
on these clusters has better features, which give better clusters.

$$\min_{\theta, W} \frac1N \sum_{n=1}^N \ell\big(g_W(f_\theta(x_n)), y_n\big), \qquad
\min_{C, y} \frac1N \sum_{n=1}^N \lVert \tilde f_\theta(x_n) - C_{y_n} \rVert_2^2$$

The two problems alternate, once an epoch. \(\tilde f\) are the features, reduced by PCA, whitened and
normalized to unit length.

Shapes: view (n, c, h, w), with edges in place of colors -> representation h (n, encoder.dim) -> logits (n,
k). Clusters live in the reduced space (N, pca_dim).

Requirements: a classifier \(g_W\) that is initialized again after every clustering, because cluster numbers
change from one epoch to the next. Many more clusters than classes. Equal weights of the clusters, to avoid
the trivial solution in which nearly all samples share a cluster: the paper draws samples uniformly over
clusters, here each sample has the weight 1 / size of its cluster.

Relations: SwAV computes balanced clusters within every step instead, and compares two views. PCL also
clusters once an epoch, and contrasts with the centers instead of learning a classifier. The only negatives
are other clusters.

Reference: Caron, Bojanowski, Joulin & Douze, "Deep Clustering for Unsupervised Learning of Visual Features",
ECCV 2018, arXiv:1807.05520.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, MemoryBank, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.core.kmeans import check_num_clusters, kmeans
from nearfar.losses import deepcluster
from nearfar.similarity import Compose, Crop, Flip, ImageViews, SobelEdges, choose_views


@dataclass(frozen=True)
class DeepCluster(Recipe):
    """Deep clustering: alternate k-means and classification into its clusters."""

    card = Card(
        title="DeepCluster",
        paper="arXiv:1807.05520",
        year=2018,
        modality="image",
        similarity="natural clustering",
        query="augmented image",
        positive="images of the same cluster",
        negative="implicit: the other clusters",
        encoder="one, end to end, in turn with k-means",
        head="linear classifier, new after every clustering",
        score="linear",
        loss="cross-entropy with pseudo-labels, clusters weighted equally",
        equation=r"\min_{\theta, W} \frac1N \sum_{n=1}^N \ell\big(g_W(f_\theta(x_n)), y_n\big)",
        family="clustering",
        similarity_type=("natural clustering",),
        head_type=("classifier",),
    )

    clusters: int = 100
    """Number of clusters (k): about ten times the expected number of classes."""
    pca_dim: int = 256
    """Dimension of the features after PCA, before clustering."""
    cluster_every: int = 1
    """Epochs between two clusterings. Choose more for short epochs."""
    sobel: bool = True
    """Whether the encoder sees edges instead of colors."""

    def similarity(self, net: Net) -> ImageViews:
        """Return two views. Training uses the first; diagnostics between views use the second."""
        return choose_views(net.sizes, lambda size: ImageViews.repeat(Compose(Crop(size), Flip())))

    def build(self, sizes: Sizes, encoder) -> Net:
        check_num_clusters(self.clusters, sizes["n"])
        return Net(
            encoder=encoder,
            classifier=nn.Linear(encoder.dim, self.clusters),
            labels=MemoryBank(sizes["n"], dtype=torch.long),
            members=torch.ones(self.clusters, dtype=torch.long),
        )

    def encode(self, net: Net, x: Tensor, tower: str = "encoder") -> Tensor:
        return getattr(net, tower)(extract_edges(x) if self.sobel else x)

    def refresh(self, net: Net, data: Any, encode_all: Callable[[], Tensor], rng_key: RandomKey, epoch: int) -> tuple[str, ...]:
        if epoch % self.cluster_every:
            return ()
        features = encode_all().to(net.members.device)
        found = kmeans(F.normalize(pca_whiten(features, self.pca_dim), dim=1), self.clusters, rng_key("kmeans"))
        net.labels.put(slice(None), found.cluster_ids)
        net.members.copy_(torch.bincount(found.cluster_ids, minlength=self.clusters))
        weight, bias = net.classifier.weight, net.classifier.bias
        weight.copy_(0.01 * rng_key("classifier").normal(torch.arange(len(weight), device=weight.device), weight.shape[1]))
        bias.zero_()
        return ("classifier",)

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"logits": net.classifier(self.encode(net, x["v0"])), "id": x["id"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return deepcluster(z["logits"], net.labels[z["id"]], net.members)


def extract_edges(x: Tensor) -> Float[Tensor, "n c h w"]:
    """Replace images by their Sobel edges, a fixed first layer.

    The function draws no random numbers: slots and random key only complete the call.
    """
    x = x if x.is_floating_point() else x.float() / 255
    return SobelEdges()(x, torch.arange(len(x), device=x.device), RandomKey(0))


def pca_whiten(x: Float[Tensor, "n d"], dim: int) -> Float[Tensor, "n p"]:
    """Project rows on the first `dim` principal components and scale each to variance 1.

    Components without variance stay 0.
    """
    x = x - x.mean(0)
    variance, axes = torch.linalg.eigh(x.T @ x / len(x))
    variance, axes = variance.flip(0)[:dim].clamp_min(0), axes.flip(1)[:, :dim]
    scale = torch.where(variance > 1e-6 * variance[0], variance.rsqrt(), 0.0)
    return x @ axes * scale


paper = DeepCluster(clusters=10_000), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=256, epochs=500,
    optimizer="sgd", lr=0.05, weight_decay=1e-5, decay_params="all", momentum=0.9, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {
    "VOC 2007 classification mAP, AlexNet, all layers": (73.7, "arXiv:1807.05520, table 2"),
    "ImageNet linear top-1, AlexNet conv3": (41.0, "arXiv:1807.05520, table 1"),
}

tiny = DeepCluster(clusters=64, pca_dim=32, cluster_every=5, sobel=False), TrainConfig(data="digits", steps=600, batch_size=64, lr=2e-3)

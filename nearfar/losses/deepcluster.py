"""DeepCluster's loss: classification into the clusters of the last epoch."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from nearfar.losses.softmax import cross_entropy


def deepcluster(logits: Float[Tensor, "n k"], cluster_ids: Int[Tensor, " n"], cluster_sizes: Int[Tensor, " k"]) -> Float[Tensor, ""]:
    r"""Compute the cross-entropy with cluster assignments as labels.

    Each sample is weighted by the inverse size of its cluster:

    \[ \mathcal L = -\frac{\sum_i w_i \log \operatorname{softmax}(l_i)_{a_i}}{\sum_i w_i}, \qquad w_i = \frac{1}{|\{j : a_j = a_i\}|} \]

    The weights replace uniform sampling over clusters. Without them there is a trivial solution: nearly all
    samples are in one cluster, and the classifier always predicts it.

    Args:
        logits: Logits of the k clusters.
        cluster_ids: Cluster of each row, -1 for samples without a cluster.
        cluster_sizes: Number of members of each cluster in the whole dataset, not in the batch.

    Shapes: a scalar.

    Requirements: every `refresh` numbers the clusters from scratch and re-initializes the classifier.

    Reference: Caron et al., Deep Clustering for Unsupervised Learning of Visual Features, ECCV 2018.
    """
    weight = cluster_sizes.clamp_min(1).to(logits)[cluster_ids.clamp_min(0)].reciprocal()
    return cross_entropy(logits, cluster_ids, sample_weight=weight)

"""DeepCluster: classify samples into the clusters of the last epoch."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from nearfar.losses.softmax import cross_entropy


def deepcluster(logits: Float[Tensor, "n k"], cluster_ids: Int[Tensor, " n"], cluster_sizes: Int[Tensor, " k"]) -> Float[Tensor, ""]:
    r"""Cross-entropy with pseudo-labels, each sample weighted by the inverse size of its cluster:

    \[ \mathcal L = -\frac{\sum_i w_i \log \operatorname{softmax}(l_i)_{a_i}}{\sum_i w_i}, \qquad w_i = \frac{1}{|\{j : a_j = a_i\}|} \]

    The weights stand for drawing samples uniformly over clusters. Without them nearly everything in one cluster
    is a solution: predict it, whatever the input.

    Shapes: `sizes` counts the clusters' members in all data, not in the batch. Samples without a cluster: -1.

    Requirements: clusters are numbered anew in every `refresh`, and the classifier is re-initialised with them.

    Reference: Caron et al., Deep Clustering for Unsupervised Learning of Visual Features, ECCV 2018.
    """
    weight = cluster_sizes.clamp_min(1).to(logits)[cluster_ids.clamp_min(0)].reciprocal()
    return cross_entropy(logits, cluster_ids, sample_weight=weight)

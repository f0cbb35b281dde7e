"""ProtoNCE: InfoNCE with the other view and with cluster prototypes, at several granularities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths, check_positive, check_rows
from nearfar.core.errors import UsageError
from nearfar.losses.info_nce import info_nce
from nearfar.losses.softmax import build_class_scores
from nearfar.scores import Number, Scores, l2_normalize

Clustering = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"], Int[Tensor, " _"]]
"""Prototypes `(c, d)`, their concentrations `(c,)`, and the prototype of each row `(n,)`."""


def proto_nce(S: Scores, z: Float[Tensor, "n d"], clusterings: Sequence[Clustering]) -> Float[Tensor, " n"]:
    r"""Compute InfoNCE of samples plus InfoNCE of prototypes.

    The prototype term is the mean over M clusterings:

    \[ \ell_i = \ell_i^{\text{InfoNCE}}
               + \frac1M \sum_{m=1}^M -\log \frac{e^{v_i^\top c_s^m / \phi_s^m}}{\sum_j e^{v_i^\top c_j^m / \phi_j^m}} \]

    Every prototype has its own temperature \(\phi\), which is small for a dense cluster. A dense cluster
    pulls less for the same score, so clusters become equally dense.

    Args:
        S: Table of the samples, temperature included. The paper uses `Scores.from_matched` with a queue.
        z: Embeddings of the rows. The function normalizes them and the prototypes.
        clusterings: Prototypes, concentrations and assignments of each clustering.

    Shapes: returns `(n,)`.

    Requirements: concentrations are greater than 0, as `estimate_concentrations` returns them.

    Relations: each clustering is `parametric_softmax`. Its class vectors are the prototypes divided by
    \(\phi\) and are not learned.

    Reference: Li et al., Prototypical Contrastive Learning of Unsupervised Representations, ICLR 2021.
    """
    if not clusterings:
        raise UsageError("proto_nce: at least one clustering is needed")
    check_rows(z=z)
    check_equal_lengths(S=S.query, z=z)
    prototypes = [info_nce(build_class_scores(l2_normalize(z), l2_normalize(c).detach() / phi[:, None], at)) for c, phi, at in clusterings]
    return info_nce(S) + torch.stack(prototypes).mean(0)


@torch.no_grad()
def estimate_concentrations(
    z: Float[Tensor, "n d"],
    prototypes: Float[Tensor, "c d"],
    cluster_ids: Int[Tensor, " n"],
    temperature: Number = 0.2,
    concentration_smoothing: Number = 10.0,
) -> Float[Tensor, " c"]:
    r"""Estimate the concentration of each cluster from its members' distances.

    It is \(\phi = \frac{\sum_{z \in c} \lVert z - c \rVert}{Z \log(Z + \alpha)}\) with Z the cluster size,
    scaled to a mean of `temperature`. A small value means a dense cluster.

    Clusters with fewer than two members get the largest value. Values outside the 10th to 90th percentile are
    clipped to these percentiles. No value is smaller than `temperature` / 100, since a cluster of equal
    vectors would have 0.

    Args:
        z: Embeddings of all samples.
        prototypes: Centers of the clusters.
        cluster_ids: Cluster of each row.
        temperature: Mean of the result.
        concentration_smoothing: Smoothing term \(\alpha\) in the logarithm.
    """
    check_rows(z=z)
    check_equal_lengths(z=z, cluster_ids=cluster_ids)
    check_positive(temperature=temperature)
    distance = torch.linalg.vector_norm(z - prototypes[cluster_ids], dim=1)
    size = torch.bincount(cluster_ids, minlength=len(prototypes)).to(z)
    phi = torch.zeros_like(size).index_add(0, cluster_ids, distance) / (size.clamp_min(1) * (size + concentration_smoothing).log())
    phi = torch.where(size > 1, phi, phi.masked_fill(size < 2, 0.0).amax())
    phi = phi.clamp(phi.quantile(0.1), phi.quantile(0.9))
    mean = phi.mean()
    return torch.where(mean == 0, temperature, temperature * phi / mean).clamp_min(temperature / 100)

"""SwAV: prediction of one view's cluster from another view, with equally large clusters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows, check_rows_of_same_shape
from nearfar.core.errors import UsageError
from nearfar.scores import Number, Scalar, cosine


@torch.no_grad()
def sinkhorn(scores: Float[Tensor, "n k"], regularization: Number = 0.05, iterations: int = 3) -> Float[Tensor, "n k"]:
    r"""Compute soft cluster assignments with equal cluster sizes (codes).

    The codes distribute the rows equally among the k columns:

    \[ Q = \arg\max_{Q \in \mathcal Q} \operatorname{tr}(Q^\top S) + \epsilon H(Q), \qquad
       \mathcal Q = \{ Q \ge 0 : Q \mathbf 1 = \mathbf 1,\; Q^\top \mathbf 1 = \tfrac nk \mathbf 1 \} \]

    The function rescales columns and rows of \(e^{S / \epsilon}\) in turn. It works in logarithms, so that no
    \(\epsilon\) causes an overflow.

    Args:
        scores: Scores S of n rows and k prototypes.
        regularization: Entropy weight \(\epsilon\), greater than 0.
        iterations: Number of rescaling steps.

    Shapes: rows sum to 1 exactly. Columns sum to n / k in the limit of many iterations. The codes have no
    gradient.

    Reference: Cuturi, Sinkhorn Distances, NIPS 2013.
    """
    if not regularization > 0 or iterations < 1:
        raise UsageError(
            f"sinkhorn: regularization must be greater than 0 and iterations at least 1, got {regularization} and {iterations}"
        )
    check_rows(scores=scores)
    log_q = (scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores) / regularization
    for _ in range(iterations):
        log_q = log_q.log_softmax(0)
        log_q = log_q.log_softmax(1)
    return log_q.exp()


def swapped_prediction(scores: Float[Tensor, "n k"], codes: Float[Tensor, "n k"], temperature: Scalar = 0.1) -> Float[Tensor, " n"]:
    r"""Compute the cross-entropy between codes and predicted assignments.

    It is \(\ell(z_t, q_s) = -\sum_k q_s^{(k)} \log p_t^{(k)}\) with
    \(p_t = \operatorname{softmax}(z_t^\top c / \tau)\).
    """
    check_rows_of_same_shape(scores=scores, codes=codes)
    check_positive(temperature=temperature)
    return -(codes * (scores / temperature).log_softmax(1)).sum(1)


def swav(
    views: Sequence[Float[Tensor, "n d"]],
    prototypes: Float[Tensor, "k d"],
    num_coded_views: int = 2,
    temperature: Scalar = 0.1,
    sinkhorn_regularization: Number = 0.05,
    iterations: int = 3,
) -> Float[Tensor, ""]:
    r"""Compute the SwAV loss of several views.

    Each view predicts the codes of every other view among the first `num_coded_views`. For two views

    \[ \mathcal L = \tfrac12 \big[\ell(z_0, q_1) + \ell(z_1, q_0)\big] \]

    on cosines to the prototypes. Small crops are further views. They predict, but have no codes.

    Args:
        views: Embeddings of each view.
        prototypes: Vectors of the k clusters.
        num_coded_views: Number of views with codes, from the first on.
        temperature: Temperature of the predictions.
        sinkhorn_regularization: Entropy weight of the codes, as in `sinkhorn`.
        iterations: Number of steps of `sinkhorn`.

    Requirements: more rows than prototypes. Otherwise codes cannot have equal sizes. With small batches a
    recipe appends stored rows: `sinkhorn(cosine(torch.cat([z, queue]), prototypes))[:n]`, then
    `swapped_prediction`.

    Relations: the loss compares no pairs and pushes no negatives away. It is a cross-entropy between views,
    not InfoNCE over clusters.

    Reference: Caron et al., Unsupervised Learning of Visual Features by Contrasting Cluster Assignments,
    NeurIPS 2020.
    """
    if not 1 <= num_coded_views <= len(views) or len(views) < 2:
        raise UsageError(
            f"swav: needs at least two views and 1 to {len(views)} coded views, "
            f"got {len(views)} views and num_coded_views = {num_coded_views}"
        )
    check_rows_of_same_shape(**{f"views[{i}]": z for i, z in enumerate(views)})
    scores = [cosine(z, prototypes) for z in views]
    losses = []
    for s in range(num_coded_views):
        codes = sinkhorn(scores[s], sinkhorn_regularization, iterations)
        losses += [swapped_prediction(scores[t], codes, temperature).mean() for t in range(len(views)) if t != s]
    return torch.stack(losses).mean()

"""Logistic losses: each pair is classified alone as positive or negative."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows
from nearfar.scores import Scalar, Scores


def sigmoid(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute the binary cross-entropy of every candidate of each row.

    The model is \(p(\text{alike}) = \sigma(s) = 1 / (1 + e^{-s})\):

    \[ \ell_i = \sum_{p \in P_i} \log(1 + e^{-s_{ip}}) + \sum_{j \in N_i} \log(1 + e^{s_{ij}}) \]

    Shapes: a table of n rows gives `(n,)`. A row without positives still pushes its negatives away.

    Relations: `sigmoid(Scores.from_pairs(a, b) * scale + bias).mean()` is SigLIP. Its bias is learned from
    about -10, because most pairs are negative. On `Scores.from_lists` the loss is negative sampling (NEG).
    The Jensen-Shannon estimator takes means instead of the two sums. Candidates do not compete, unlike in
    `info_nce`.

    References: Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023; Mikolov et al.,
    NIPS 2013.
    """
    attract, repel = S.stats(Scores.pos_softplus, Scores.neg_softplus)
    return attract + repel


def nt_logistic(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], temperature: Scalar = 0.5) -> Float[Tensor, ""]:
    r"""Compute SimCLR's logistic loss over all views of a batch.

    It is \(-\log \sigma(s_{ii'}) - \sum_{j} \log \sigma(-s_{ij})\) with \(s = \cos / \tau\), averaged over
    all views.

    Relations: `sigmoid` on the table of `nt_xent`, without a bias.

    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020,
    table 2.
    """
    check_rows(z0=z0, z1=z1)
    check_positive(temperature=temperature)
    return sigmoid(Scores.from_views(z0, z1) / temperature).mean()

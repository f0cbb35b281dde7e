"""Logistic losses: each pair is judged alone, alike or not."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows
from nearfar.scores import Scalar, Scores


def sigmoid(S: Scores) -> Float[Tensor, " n"]:
    r"""Binary cross-entropy of every candidate, with \(p(\text{alike}) = \sigma(s) = 1 / (1 + e^{-s})\):

    \[ \ell_i = \sum_{p \in P_i} \log(1 + e^{-s_{ip}}) + \sum_{j \in N_i} \log(1 + e^{s_{ij}}) \]

    Shapes: a table of n rows gives `(n,)`. A row without positives still pushes its negatives away.

    Relations: `sigmoid(pairs(a, b) * scale + bias).mean()` is SigLIP, with bias learned from about -10 because
    most pairs are negative; on `listed` scores it is negative sampling (NEG); the Jensen-Shannon estimator takes
    the two sums as means. There is no competition between candidates, unlike in `info_nce`.

    References: Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023; Mikolov et al., NIPS 2013.
    """
    attract, repel = S.stats(Scores.pos_softplus, Scores.neg_softplus)
    return attract + repel


def nt_logistic(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], temperature: Scalar = 0.5) -> Float[Tensor, ""]:
    r"""SimCLR's logistic alternative: \(-\log \sigma(s_{ii'}) - \sum_{j} \log \sigma(-s_{ij})\) with \(s = \cos / \tau\), over all views.

    Relations: `sigmoid` on the table of `nt_xent`, without a bias.

    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020, table 2.
    """
    check_rows(z0=z0, z1=z1)
    check_positive(temperature=temperature)
    return sigmoid(Scores.from_views(z0, z1) / temperature).mean()

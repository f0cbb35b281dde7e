"""Multi-class N-pair loss: InfoNCE on plain dot products."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores, dot


def n_pair(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    r"""Compute the multi-class N-pair loss.

    Each row has one positive. The n - 1 positives of the other rows are its negatives:

    \[ \mathcal L = \frac1n \sum_i \log\Big(1 + \sum_{j \ne i} \exp(a_i^\top b_j - a_i^\top b_i)\Big) \]

    Requirements: the loss does not bound the lengths of the vectors. The paper adds a small penalty on them
    (`norm_penalty`).

    Relations: `info_nce(Scores.from_pairs(a, b, score=dot)).mean()`. For n = 2 it is a smooth triplet loss.
    Each row has one positive, not several.

    Reference: Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016.
    """
    check_rows(a=a, b=b)
    return info_nce(Scores.from_pairs(a, b, score=dot)).mean()

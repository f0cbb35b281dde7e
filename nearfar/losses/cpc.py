"""Contrastive predictive coding: the past finds the future, some steps ahead."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths, check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores, bilinear


def cpc(context: Float[Tensor, "n e"], future: Float[Tensor, "k n d"], weights: Float[Tensor, "k d e"]) -> Float[Tensor, " k"]:
    r"""For each of k steps ahead, InfoNCE with the density ratio \(f_k(x_{t+k}, c_t) = \exp(z_{t+k}^\top W_k c_t)\):

    \[ \mathcal L_k = -\frac1n \sum_t \log \frac{f_k(x_{t+k}, c_t)}{\sum_{j} f_k(x_j, c_t)} \]

    Shapes: n contexts, and what came k steps after each of them. Gives `(k,)`; take the mean. The futures of the
    other rows are the negatives: of other sequences, or of other times, as the rows were chosen.

    Relations: `info_nce(pairs(c, z, score=bilinear(W.T)))` for each step. \(\log n - \mathcal L_k\) bounds the
    information between context and future: `info_nce_bound`.

    Reference: van den Oord, Li, Vinyals, Representation Learning with Contrastive Predictive Coding, arXiv:1807.03748.
    """
    check_rows(context=context)
    check_rows(3, future=future)
    check_equal_lengths(context=context, future=future[0])
    steps = zip(future, weights, strict=True)
    return torch.stack([info_nce(Scores.from_pairs(context, z, score=bilinear(w.T))).mean() for z, w in steps])

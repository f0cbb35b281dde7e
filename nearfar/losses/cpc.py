"""Contrastive predictive coding (CPC): InfoNCE between a context and its future, some steps ahead."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths, check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores, bilinear


def cpc(context: Float[Tensor, "n e"], future: Float[Tensor, "k n d"], weights: Float[Tensor, "k d e"]) -> Float[Tensor, " k"]:
    r"""Compute InfoNCE between contexts and their futures at each step.

    Step k uses the density ratio \(f_k(x_{t+k}, c_t) = \exp(z_{t+k}^\top W_k c_t)\):

    \[ \mathcal L_k = -\frac1n \sum_t \log \frac{f_k(x_{t+k}, c_t)}{\sum_{j} f_k(x_j, c_t)} \]

    The futures of the other rows are the negatives. They come from other sequences or from other times,
    depending on how the rows were chosen.

    Args:
        context: n contexts.
        future: For each of k steps, the vectors that follow each context after this number of steps.
        weights: One matrix W for each step.

    Shapes: returns `(k,)`; take the mean.

    Relations: `info_nce(Scores.from_pairs(context, z, score=bilinear(W.T)))` for each step.
    \(\log n - \mathcal L_k\) is a lower bound of the mutual information between context and future:
    `info_nce_bound`.

    Reference: van den Oord, Li, Vinyals, Representation Learning with Contrastive Predictive Coding,
    arXiv:1807.03748.
    """
    check_rows(context=context)
    check_rows(3, future=future)
    check_equal_lengths(context=context, future=future[0])
    steps = zip(future, weights, strict=True)
    return torch.stack([info_nce(Scores.from_pairs(context, z, score=bilinear(w.T))).mean() for z, w in steps])

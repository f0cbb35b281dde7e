"""InfoNCE: identify the positive among the candidates. Many related losses are InfoNCE on another table."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.scores import Scores
from nearfar.scores.shortcuts import fast_cross_entropy


def info_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute the InfoNCE loss of each row.

    The loss is the cross-entropy of a softmax over the row's candidates, averaged over its positives:

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_{j \in P_i \cup N_i} e^{s_{ij}}} \]

    Shapes: a table of n rows gives `(n,)`; take the mean.

    Requirements: the temperature is part of the table, `info_nce(S / temperature)`. A row without positives
    has loss 0 and no gradient. A row with one positive and no negatives has loss 0.

    Relations: the table decides the method. `Scores.from_views` gives NT-Xent (SimCLR). `Scores.from_pairs`
    gives SimCSE and one direction of CLIP. `Scores.from_matched` gives MoCo.
    `Scores.from_pairs(a, b, score=dot)` gives N-pair and DPR. `Scores.from_pairs(a, b, score=bilinear(W))`
    gives CPC. `Scores.from_labels` gives SupCon. With several positives this is SupCon's L_out, in which
    positives compete with each other. In `mil_nce` a single near positive suffices.
    \(\log(1 + |N_i|) - \ell_i\) bounds mutual information from below.

    Reference: van den Oord, Li, Vinyals, Representation Learning with Contrastive Predictive Coding,
    arXiv:1807.03748.
    """
    known = fast_cross_entropy(S)
    return info_nce_from_statistics(*S.stats(Scores.all_lse, Scores.pos_sum, Scores.pos_count)) if known is None else known


def info_nce_from_statistics(
    all_lse: Float[Tensor, " n"], pos_sum: Float[Tensor, " n"], pos_count: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Compute InfoNCE from row statistics.

    Use it for losses that compute the statistics in another way.
    """
    return (all_lse - pos_sum / pos_count.clamp_min(1)).masked_fill(pos_count == 0, 0.0)


def mil_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute InfoNCE with the sum over positives inside the logarithm.

    \[ \ell_i = -\log \frac{\sum_{p \in P_i} e^{s_{ip}}}{\sum_{j \in P_i \cup N_i} e^{s_{ij}}} \]

    Shapes and requirements: as `info_nce`. Without negatives the loss is 0 for any positives.

    Relations: equal to `info_nce` for one positive, never larger for several. One near positive is enough,
    the others may stay where they are. MIL-NCE and VINCE use it. On distances it is the soft nearest neighbor
    loss. SupCon's L_in is this loss plus \(\log |P_i|\).

    Reference: Miech et al., End-to-End Learning of Visual Representations from Uncurated Instructional
    Videos, CVPR 2020.
    """
    all_lse, pos_lse, pos_count = S.stats(Scores.all_lse, Scores.pos_lse, Scores.pos_count)
    return torch.where(pos_count > 0, all_lse - pos_lse, 0.0)

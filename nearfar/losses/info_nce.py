"""InfoNCE: name the positive among the candidates. The centre of the family; most neighbours are this on another table."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.scores import Scores
from nearfar.scores.shortcuts import fast_cross_entropy


def info_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""The log-loss of a softmax over each row's candidates, averaged over its positives:

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log \frac{e^{s_{ip}}}{\sum_{j \in P_i \cup N_i} e^{s_{ij}}} \]

    Shapes: a table of n rows gives `(n,)`; take the mean.

    Requirements: the temperature is in the table, `info_nce(S / tau)`. A row without positives says nothing: its
    loss is 0, without gradient. A row with one positive and no negatives has loss 0.

    Relations: `views` makes it NT-Xent (SimCLR), `pairs` SimCSE and one direction of CLIP, `matched` MoCo,
    `pairs(score=dot)` N-pair and DPR, `pairs(score=bilinear(W))` CPC, `labelled` SupCon. With several positives
    this is SupCon's L_out, in which positives compete with each other; `info_nce_in` lets any one of them suffice.
    \(\log(1 + |N_i|) - \ell_i\) bounds mutual information from below.

    Reference: van den Oord, Li, Vinyals, Representation Learning with Contrastive Predictive Coding, arXiv:1807.03748.
    """
    known = fast_cross_entropy(S)
    return info_nce_from_statistics(*S.stats(Scores.all_lse, Scores.pos_sum, Scores.pos_count)) if known is None else known


def info_nce_from_statistics(
    all_lse: Float[Tensor, " n"], pos_sum: Float[Tensor, " n"], pos_count: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """InfoNCE from the statistics it needs, for losses that get them in another way."""
    return (all_lse - pos_sum / pos_count.clamp_min(1)).masked_fill(pos_count == 0, 0.0)


def mil_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""The positives together against all candidates, their sum inside the logarithm:

    \[ \ell_i = -\log \frac{\sum_{p \in P_i} e^{s_{ip}}}{\sum_{j \in P_i \cup N_i} e^{s_{ij}}} \]

    Shapes and requirements: as `info_nce`. No negatives: loss 0, whatever the positives.

    Relations: equal to `info_nce` for one positive, never more than it for several: one near positive is enough,
    the others may stay where they are. MIL-NCE and VINCE use it; on distances it is the soft nearest neighbour
    loss; SupCon's L_in is this plus \(\log |P_i|\).

    Reference: Miech et al., End-to-End Learning of Visual Representations from Uncurated Instructional Videos, CVPR 2020.
    """
    all_lse, pos_lse, pos_count = S.stats(Scores.all_lse, Scores.pos_lse, Scores.pos_count)
    return torch.where(pos_count > 0, all_lse - pos_lse, 0.0)

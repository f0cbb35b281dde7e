"""The spreading half of instance discrimination in a batch: nobody may be taken for somebody else."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.losses.dense_rows import map_dense_rows
from nearfar.scores import Scores, log_sum_exp


def spreading(S: Scores) -> Float[Tensor, " n"]:
    r"""Each negative alone must not be chosen, where a row chooses by a softmax over all its candidates:

    \[ \ell_j = -\sum_{i \in N_j} \log\big(1 - P(i \mid j)\big), \qquad
       P(i \mid j) = \frac{e^{s_{ji}}}{\sum_{k \in P_j \cup N_j} e^{s_{jk}}} \]

    Shapes: a table of n rows gives `(n,)`; take the mean.

    Requirements: another candidate for each negative to lose against: a row's only candidate, if negative, counts as 0.

    Relations: `info_nce` asks the positive to be chosen, \(-\log P\); this asks each of the others not to be, and is about
    \(1 - P\) of the positive where all of them are unlikely. Together, for images and augmented images of a batch,

        info_nce(pairs(augmented, original) / tau) + spreading(pairs(original, original) / tau)

    is the loss of the invariant and spreading instance feature: in the second table a row's positive is itself. On a
    memory bank (`matched`) the same sum is PIRL's NCE. `sigmoid` judges negatives alone too, without a softmax.

    Reference: Ye, Zhang, Yuen, Chang, Unsupervised Embedding Learning via Invariant and Spreading Instance Feature, CVPR 2019.
    """
    return map_dense_rows(S, _compute_block_losses)[0]


def _compute_block_losses(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
    r"""Of all candidates only the nearest can have P > 1/2, where \(\log(1 - P)\) would lose its digits: it is taken from
    the others' sum instead, \(-\log(1 - P) = \log \sum_k e^{s_k} - \log \sum_{k \ne \text{nearest}} e^{s_k}\)."""
    if scores.shape[1] == 0:
        return (scores.sum(1),)
    candidates = torch.where(pos | neg, scores, -torch.inf)
    nearest = candidates.argmax(1, keepdim=True)
    whole, rest = log_sum_exp(candidates), log_sum_exp(candidates.scatter(1, nearest, -torch.inf))
    of_nearest = torch.where(neg.gather(1, nearest)[:, 0] & (rest != -torch.inf), whole - rest, 0.0)
    chance = torch.where(neg.scatter(1, nearest, False), scores - whole[:, None], -torch.inf).exp()
    return (of_nearest - torch.log1p(-chance).sum(1),)

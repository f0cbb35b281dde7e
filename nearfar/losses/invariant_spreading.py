"""Spreading term of instance discrimination in a batch: no sample is mistaken for another."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.losses.dense_rows import map_dense_rows
from nearfar.scores import Scores, log_sum_exp


def spreading(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute the loss of each row's negatives under its softmax.

    Each negative alone should have a low probability in a softmax over all candidates of the row:

    \[ \ell_j = -\sum_{i \in N_j} \log\big(1 - P(i \mid j)\big), \qquad
       P(i \mid j) = \frac{e^{s_{ji}}}{\sum_{k \in P_j \cup N_j} e^{s_{jk}}} \]

    Shapes: a table of n rows gives `(n,)`; take the mean.

    Requirements: each negative needs another candidate to compete with. A row's only candidate counts as 0 if
    it is negative.

    Relations: `info_nce` raises the probability of the positive, \(-\log P\). This loss lowers the
    probability of each other candidate. This loss is about \(1 - P\) of the positive if all others are
    unlikely. The loss of the invariant and spreading instance feature adds both, for images and augmented
    images of a batch:

        across = Scores.from_pairs(augmented, original) / temperature
        within = Scores.from_pairs(original, original) / temperature
        loss = info_nce(across) + spreading(within)

    In the second table the positive of a row is the row itself. On a memory bank (`Scores.from_matched`) the
    same sum is PIRL's NCE. `sigmoid` also treats each negative alone, without a softmax.

    Reference: Ye, Zhang, Yuen, Chang, Unsupervised Embedding Learning via Invariant and Spreading Instance
    Feature, CVPR 2019.
    """
    return map_dense_rows(S, _compute_block_losses)[0]


def _compute_block_losses(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
    r"""Compute the spreading loss of one block of rows.

    Only the nearest candidate can have P > 1/2, where \(\log(1 - P)\) would lose precision. Its term is
    computed from the sum of the other candidates instead:
    \(-\log(1 - P) = \log \sum_k e^{s_k} - \log \sum_{k \ne \text{nearest}} e^{s_k}\).
    """
    if scores.shape[1] == 0:
        return (scores.sum(1),)
    candidates = torch.where(pos | neg, scores, -torch.inf)
    nearest = candidates.argmax(1, keepdim=True)
    whole, rest = log_sum_exp(candidates), log_sum_exp(candidates.scatter(1, nearest, -torch.inf))
    of_nearest = torch.where(neg.gather(1, nearest)[:, 0] & (rest != -torch.inf), whole - rest, 0.0)
    chance = torch.where(neg.scatter(1, nearest, False), scores - whole[:, None], -torch.inf).exp()
    return (of_nearest - torch.log1p(-chance).sum(1),)

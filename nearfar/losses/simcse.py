"""SimCSE: a sentence finds itself under another dropout mask, or what it entails and not what contradicts it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows
from nearfar.core.errors import UsageError
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Number, Scalar, Scores, cosine


def simcse(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], temperature: Scalar = 0.05) -> Float[Tensor, ""]:
    r"""The same sentences twice, through independent dropout masks:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{\cos(h_i, h_i') / \tau}}{\sum_{j} e^{\cos(h_i, h_j') / \tau}} \]

    Relations: `info_nce(pairs(h0, h1) / tau).mean()`. One direction, and only across the two passes: `clip` has both
    directions, `nt_xent` also compares within a pass.

    Reference: Gao, Yao, Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021.
    """
    check_rows(z0=z0, z1=z1)
    return info_nce(Scores.from_pairs(z0, z1) / temperature).mean()


def simcse_supervised(
    anchor: Float[Tensor, "n d"],
    positive: Float[Tensor, "n d"],
    negative: Float[Tensor, "n d"],
    temperature: Scalar = 0.05,
    hard_negative_weight: Number = 1.0,
) -> Float[Tensor, ""]:
    r"""Premises against what they entail, with what contradicts them as hard negatives of everybody:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{\cos(h_i, h_i^+) / \tau}}
         {\sum_{j} \left( e^{\cos(h_i, h_j^+) / \tau} + \alpha^{\mathbb 1_i^j}\, e^{\cos(h_i, h_j^-) / \tau} \right)} \]

    with \(\mathbb 1_i^j = 1\) if i = j, else 0: \(\alpha\) is the weight of one's *own* hard negative, those of the
    others have weight 1. (A product \(\alpha \mathbb 1_i^j\), as it is sometimes printed, would delete the others.)

    Requirements: alpha > 0.

    Relations: alpha = 1 is `info_nce` on `pairs(h, torch.cat([positive, negative])) / tau`, which is also
    multiple-negatives ranking with hard negatives.

    Reference: Gao, Yao, Chen, EMNLP 2021, equation 8.
    """
    if not hard_negative_weight > 0:
        raise UsageError(f"simcse_supervised: hard_negative_weight must be greater than 0, got {hard_negative_weight}")
    check_rows(anchor=anchor, positive=positive, negative=negative)
    check_positive(temperature=temperature)
    S = Scores.from_pairs(anchor, torch.cat([positive, negative]))
    place = torch.arange(len(anchor), device=anchor.device)
    own = cosine.score_pairs(S.query, S.key[len(anchor) :])[:, None] + math.log(hard_negative_weight) * temperature
    S = S.exclude_negatives(place, torch.cat([torch.full_like(place, -1), place]))  # one's own hard negative leaves the shared columns
    return info_nce(replace(S, private_scores=own, private_signs=torch.full_like(own, -1, dtype=torch.int8)) / temperature).mean()

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
from nearfar.scores import Number, Scalar, cosine, pairs


def simcse(h0: Float[Tensor, "n d"], h1: Float[Tensor, "n d"], tau: Scalar = 0.05) -> Float[Tensor, ""]:
    r"""The same sentences twice, through independent dropout masks:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{\cos(h_i, h_i') / \tau}}{\sum_{j} e^{\cos(h_i, h_j') / \tau}} \]

    Relations: `info_nce(pairs(h0, h1) / tau).mean()`. One direction, and only across the two passes: `clip` has both
    directions, `nt_xent` also compares within a pass.

    Reference: Gao, Yao, Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021.
    """
    check_rows(h0=h0, h1=h1)
    return info_nce(pairs(h0, h1) / tau).mean()


def simcse_supervised(
    h: Float[Tensor, "n d"], positive: Float[Tensor, "n d"], negative: Float[Tensor, "n d"], tau: Scalar = 0.05, alpha: Number = 1.0
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
    if not alpha > 0:
        raise UsageError(f"simcse_supervised: alpha must be greater than 0, got {alpha}")
    check_rows(h=h, positive=positive, negative=negative)
    check_positive(tau=tau)
    S = pairs(h, torch.cat([positive, negative]))
    place = torch.arange(len(h), device=h.device)
    own = cosine.of_pairs(S.query, S.key[len(h) :])[:, None] + math.log(alpha) * tau
    S = S.skip(place, torch.cat([torch.full_like(place, -1), place]))  # one's own hard negative leaves the shared columns
    return info_nce(replace(S, own=own, own_sign=torch.full_like(own, -1, dtype=torch.int8)) / tau).mean()

"""SimCSE losses: positives are the same sentence under another dropout mask, or an entailed sentence."""

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
    r"""Compute InfoNCE between two dropout passes of the same sentences.

    The two passes have independent dropout masks:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{\cos(h_i, h_i') / \tau}}{\sum_{j} e^{\cos(h_i, h_j') / \tau}} \]

    Relations: `info_nce(Scores.from_pairs(z0, z1) / temperature).mean()`. The loss has one direction and
    compares only across the two passes. `clip` has both directions. `nt_xent` also compares within a pass.

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
    r"""Compute InfoNCE with entailments as positives and contradictions as hard negatives.

    The contradictions are negatives of every premise:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{\cos(h_i, h_i^+) / \tau}}
         {\sum_{j} \left( e^{\cos(h_i, h_j^+) / \tau} + \alpha^{\mathbb 1_i^j}\, e^{\cos(h_i, h_j^-) / \tau} \right)} \]

    with \(\mathbb 1_i^j = 1\) if i = j, else 0. \(\alpha\) is the weight of a row's *own* hard negative. The
    hard negatives of the other rows have weight 1. (A product \(\alpha \mathbb 1_i^j\), as it is sometimes
    printed, would remove the others.)

    Args:
        anchor: Embeddings of the premises.
        positive: Embeddings of the entailed sentences.
        negative: Embeddings of the contradicting sentences.
        temperature: Temperature of the cosines.
        hard_negative_weight: Weight \(\alpha\), greater than 0.

    Relations: with \(\alpha = 1\) the loss is `info_nce` on
    `Scores.from_pairs(anchor, torch.cat([positive, negative])) / temperature`. This is also
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
    # Each row's own hard negative leaves the shared columns.
    S = S.exclude_negatives(place, torch.cat([torch.full_like(place, -1), place]))
    return info_nce(replace(S, private_scores=own, private_signs=torch.full_like(own, -1, dtype=torch.int8)) / temperature).mean()

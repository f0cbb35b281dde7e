"""InfoNCE corrected for false negatives, with optional weights for hard negatives."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import read_host_number
from nearfar.core.errors import UsageError
from nearfar.scores import Number, Scores


def debiased(S: Scores, false_negative_share: Number = 0.1) -> Float[Tensor, " n"]:
    r"""Compute InfoNCE corrected for false negatives.

    Unlabeled negatives are drawn from the data, so a share \(\eta\) of them is actually positive. The loss
    subtracts this share:

    \[ \ell_i = -\log \frac{e^{s_i^+}}{e^{s_i^+} + N g_i}, \qquad
       g_i = \max\left\{ \frac{1}{1 - \eta} \Big( \tfrac1N \sum_{j \in N_i} e^{s_{ij}}
                                                  - \tfrac{\eta}{M} \sum_{p \in P_i} e^{s_{ip}} \Big),\; e^{s_{\min}} \right\} \]

    There are N negatives and M positives. \(e^{s_i^+}\) is the mean over the positives, and
    \(s_{\min} = -1/\tau\) is the lowest possible score. Scores are cosines divided by the temperature
    everywhere, also in the floor.

    Args:
        S: Table of cosines divided by the temperature.
        false_negative_share: Share of positives among the negatives, \(\eta\).

    Shapes: a table of n rows gives `(n,)`. Rows without positives or without negatives have loss 0.

    Requirements: a score with a lower bound, such as cosine.

    Relations: with `false_negative_share=0` this is `info_nce` (for one positive). `hard_negative` with
    `hardness=0` is this loss.

    Reference: Chuang et al., Debiased Contrastive Learning, NeurIPS 2020.
    """
    pos, pos_count, neg, neg_count = S.stats(Scores.pos_lse, Scores.pos_count, Scores.neg_lse, Scores.neg_count)
    pos = pos - pos_count.log()
    return _debias(pos, pos, neg - neg_count.log(), pos_count, neg_count, _get_score_floor(S), false_negative_share)


def hard_negative(S: Scores, false_negative_share: Number = 0.1, hardness: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute `debiased` with larger weights for harder negatives.

    Negatives are drawn from \(q_\beta(x^-) \propto e^{\beta s}\, p(x^-)\). Importance sampling replaces the
    two means in \(g\), each over its own distribution:

    \[ \mathbb E_{u \sim q_\beta}[e^{s_u}] = \frac{\mathbb E_{p}[e^{(1 + \beta) s_u}]}{\mathbb E_{p}[e^{\beta s_u}]}, \qquad
       \mathbb E_{v \sim q_\beta^+}[e^{s_v}] = \frac{\mathbb E_{p^+}[e^{(1 + \beta) s_v}]}{\mathbb E_{p^+}[e^{\beta s_v}]} \]

    The means are estimated over the row's negatives and over its positives. The weights carry a gradient: an
    easy negative that moves closer takes weight from the hard ones.

    Args:
        S: Table of cosines divided by the temperature.
        false_negative_share: Share of positives among the negatives.
        hardness: Exponent \(\beta\), at least 0. It multiplies the scores as they are, temperature included.

    Shapes and requirements: as `debiased`.

    Reference: Robinson et al., Contrastive Learning with Hard Negative Samples, ICLR 2021.
    """
    if hardness < 0:
        raise UsageError(f"hard_negative: hardness must not be negative, got {hardness}")
    pos, neg = Scores.pos_lse, Scores.neg_lse
    powers = (pos, pos.with_power(1 + hardness), pos.with_power(hardness), neg.with_power(1 + hardness), neg.with_power(hardness))
    plain, up, down, neg_up, neg_down, pos_count, neg_count = S.stats(*powers, Scores.pos_count, Scores.neg_count)
    return _debias(plain - pos_count.log(), up - down, neg_up - neg_down, pos_count, neg_count, _get_score_floor(S), false_negative_share)


def _debias(
    positive: Float[Tensor, " n"],
    alike: Float[Tensor, " n"],
    drawn: Float[Tensor, " n"],
    pos_count: Float[Tensor, " n"],
    neg_count: Float[Tensor, " n"],
    floor: Float[Tensor, ""],
    false_negative_share: Number,
) -> Float[Tensor, " n"]:
    """Compute log(1 + N g / e^s+) from logarithms of means of e^s.

    Args:
        positive: Logarithm of the mean over the positives.
        alike: Logarithm of the mean that estimates the false negatives.
        drawn: Logarithm of the mean over the drawn negatives.
        pos_count: Number of positives.
        neg_count: Number of negatives.
        floor: Lowest possible score.
        false_negative_share: Share of positives among the negatives.
    """
    if not 0 <= false_negative_share < 1:
        raise UsageError(
            f"false_negative_share, the share of positives among the negatives, must be at least 0 and below 1, got {false_negative_share}"
        )
    told = (pos_count > 0) & (neg_count > 0)
    positive, alike, drawn = (torch.where(told, x, 0.0) for x in (positive, alike, drawn))
    # All values are relative to the larger of the drawn mean and the floor. From
    # `alike = -log(false_negative_share)` on, the difference is not positive and the floor applies.
    # The cap at this point changes no result and prevents overflow.
    top = torch.maximum(drawn, floor).detach()
    share = false_negative_share * (alike - top).clamp_max(-math.log(false_negative_share) if false_negative_share else 0.0).exp()
    tiny = torch.finfo(top.dtype).tiny
    g = torch.maximum(((drawn - top).exp() - share) / (1 - false_negative_share), (floor - top).exp().clamp_min(tiny))
    log_negatives = g.log() + top + neg_count.clamp_min(1).log()
    return torch.where(told, torch.logaddexp(positive, log_negatives) - positive, 0.0)


def _get_score_floor(S: Scores) -> Float[Tensor, ""]:
    scale = read_host_number(S.scale)
    if S.score.lowest == -math.inf or (scale is not None and scale < 0):
        raise UsageError(
            "debiased and hard_negative need scores that are bounded from below: use a table that scores by cosine, with a positive scale"
        )
    return torch.as_tensor(S.lowest, dtype=S.query.dtype, device=S.query.device)

"""Noise-contrastive estimation: tell data from noise, and learn the ratio of their densities on the way."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_equal_shapes, check_masks, check_rows, check_rows_of_same_shape
from nearfar.core.errors import UsageError
from nearfar.losses.info_nce import info_nce
from nearfar.losses.sigmoid import sigmoid
from nearfar.scores import Number, Scores, dot


def nce(data: Float[Tensor, " n"], noise: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    r"""Logistic regression between n samples of the data and m of a noise whose density q is known:

    \[ \mathcal L = -\frac1n \sum_i \log \sigma(\ell(x_i) - \log \nu)
                    - \nu \cdot \frac1m \sum_j \log\big(1 - \sigma(\ell(\tilde x_j) - \log \nu)\big),
       \qquad \ell(u) = \log p_\theta(u) - \log q(u), \quad \nu = \frac mn \]

    so that \(\sigma(\ell - \log \nu) = p_\theta / (p_\theta + \nu q)\). The arguments are \(\ell\) at the data and at the noise.

    Requirements: \(p_\theta\) need not be normalised: its logarithm may contain a learned constant, which
    converges to minus the logarithm of the partition function. q must be positive where the data are.

    Relations: \(\nu = 1\) is the equation of the first paper. `binary_nce` is this, row by row, of a table.

    Reference: Gutmann, Hyvärinen, Noise-Contrastive Estimation, AISTATS 2010.
    """
    check_rows(1, data=data)
    check_rows(1, noise=noise)
    ratio = len(noise) / len(data)
    return F.softplus(math.log(ratio) - data).mean() + ratio * F.softplus(noise - math.log(ratio)).mean()


def binary_nce(S: Scores, noise_ratio: Number) -> Float[Tensor, " n"]:
    r"""Each candidate alone, data or noise, where noise is m times as frequent:

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log p(D = 1 \mid i, p)
                - \frac{m}{|N_i|} \sum_{j \in N_i} \log\big(1 - p(D = 1 \mid i, j)\big),
       \qquad p(D = 1) = \frac{e^s}{e^s + m} = \sigma(s - \log m) \]

    where \(e^s\) models the ratio \(p^+ / p^-\). A similarity enters with a plus: \(1 / (1 + e^{s})\), as it is
    sometimes printed, would push positives apart. Both the m in the posterior and the m before the second sum are needed.

    Shapes: a table of n rows gives `(n,)`; a side that is empty counts as 0.

    Requirements: at best \(s = \log p^+(k) / p^-(k)\); where the density of the noise is known and s is to be
    \(\log p^+\) instead, subtract its logarithm first: `log_ratios`.

    Relations: m = 1 is minus `jsd_bound`, row by row; with one positive and m negatives it is `sigmoid(S - log m)`;
    `sigmoid` itself (NEG) drops the m's. `instance_nce` and `crd` are this with their own noise densities.

    References: Gutmann, Hyvärinen, AISTATS 2010; Ma, Collins, Noise Contrastive Estimation and Negative Sampling for
    Conditional Models, EMNLP 2018.
    """
    if not noise_ratio > 0:
        raise UsageError(
            f"binary_nce: noise_ratio, the number of noise samples for one of the data, must be greater than 0, got {noise_ratio}"
        )
    odds = S + -math.log(noise_ratio)
    pos, neg, pos_count, neg_count = odds.stats(Scores.pos_softplus, Scores.neg_softplus, Scores.pos_count, Scores.neg_count)
    return pos / pos_count.clamp_min(1) + noise_ratio * neg / neg_count.clamp_min(1)


def build_log_ratio_scores(
    pos_scores: Float[Tensor, "n p"],
    neg_scores: Float[Tensor, "n k"],
    pos_noise_log_density: Float[Tensor, "n p"],
    neg_noise_log_density: Float[Tensor, "n k"],
) -> Scores:
    r"""Scores less the known log-density of the noise at each candidate, \(s(q, k) - \log p^-(k)\), as a table.

    Relations: `binary_nce(log_ratios(…), m)` is NCE of a conditional model (the scores must be normalised, or learn to be);
    `ranking_nce(log_ratios(…))` is its global form, in which the row's constant cancels.
    """
    check_rows(pos_scores=pos_scores, neg_scores=neg_scores)
    check_equal_shapes(pos_scores=pos_scores, pos_noise_log_density=pos_noise_log_density)
    check_equal_shapes(neg_scores=neg_scores, neg_noise_log_density=neg_noise_log_density)
    return Scores.from_lists(pos_scores - pos_noise_log_density, neg_scores - neg_noise_log_density)


def ranking_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""Global NCE: which of the candidates came from the data?

    \[ \ell_i = -\log \frac{e^{s_{i+}}}{\sum_{k \in K_i} e^{s_{ik}}}, \qquad
       p(i \mid q, K) = \frac{p^+(k_i \mid q) \prod_{j \ne i} p^-(k_j)}{\sum_l p^+(k_l \mid q) \prod_{j \ne l} p^-(k_j)} \]

    The product runs over all *other* candidates; dividing by the product over all of them leaves the ratios \(e^s = p^+ / p^-\).

    Relations: `info_nce`, under the name it has in language modelling.

    Reference: Jozefowicz et al., Exploring the Limits of Language Modeling, arXiv:1602.02410.
    """
    return info_nce(S)


def negative_sampling(center: Float[Tensor, "n d"], context: Float[Tensor, "n d"], noise: Float[Tensor, "n k d"]) -> Float[Tensor, " n"]:
    r"""Skip-gram with negative sampling (NEG, SGNS), a dot product for each pair:

    \[ \ell_i = -\log \sigma(u_i^\top v_i) - \sum_{j=1}^k \log \sigma(-\tilde u_{ij}^\top v_i) \]

    with v the centre word, u a word of its context and \(\tilde u\) words drawn from the unigrams to the power 3/4.

    Relations: `sigmoid` on `listed` scores; NCE that pretends \(k\,p^- \equiv 1\), so that s tends to
    \(\log p^+ / p^- - \log k\) (shifted pointwise mutual information) and no density is learned.

    Reference: Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality, NIPS 2013.
    """
    check_rows_of_same_shape(center=center, context=context)
    check_rows(center=center, noise=noise)
    v, u, drawn = (dot.prepare_vectors(x) for x in (center, context, noise))
    return sigmoid(Scores.from_lists((u * v).sum(1, keepdim=True), torch.einsum("nd,nkd->nk", v, drawn)))


def logistic_pair(scores: Float[Tensor, " n"], is_positive: Bool[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Binary cross-entropy of single pairs, \(-y \log \sigma(s) - (1 - y) \log(1 - \sigma(s))\).

    Relations: `sigmoid` of a table in which every row has one candidate.
    """
    check_rows(1, scores=scores)
    check_masks(scores.shape, is_positive=is_positive)
    return F.softplus(torch.where(is_positive, -scores, scores))

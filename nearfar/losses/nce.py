"""Noise-contrastive estimation: classification of data and noise.

The classifier learns the ratio of their densities.
"""

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
    r"""Compute the logistic loss of data against noise of known density.

    There are n samples of the data and m samples of a noise with density q:

    \[ \mathcal L = -\frac1n \sum_i \log \sigma(\ell(x_i) - \log \nu)
                    - \nu \cdot \frac1m \sum_j \log\big(1 - \sigma(\ell(\tilde x_j) - \log \nu)\big),
       \qquad \ell(u) = \log p_\theta(u) - \log q(u), \quad \nu = \frac mn \]

    Therefore \(\sigma(\ell - \log \nu) = p_\theta / (p_\theta + \nu q)\).

    Args:
        data: \(\ell\) at the data.
        noise: \(\ell\) at the noise.

    Requirements: \(p_\theta\) need not be normalized. Its logarithm may contain a learned constant, which
    converges to minus the logarithm of the partition function. q must be positive where the data are.

    Relations: \(\nu = 1\) is the equation of the first paper. `binary_nce` computes this row by row for a
    table.

    Reference: Gutmann, Hyvärinen, Noise-Contrastive Estimation, AISTATS 2010.
    """
    check_rows(1, data=data)
    check_rows(1, noise=noise)
    ratio = len(noise) / len(data)
    return F.softplus(math.log(ratio) - data).mean() + ratio * F.softplus(noise - math.log(ratio)).mean()


def binary_nce(S: Scores, noise_ratio: Number) -> Float[Tensor, " n"]:
    r"""Compute the binary NCE loss of each row.

    Each candidate is classified alone as data or noise. Noise is m times as frequent as data:

    \[ \ell_i = -\frac{1}{|P_i|} \sum_{p \in P_i} \log p(D = 1 \mid i, p)
                - \frac{m}{|N_i|} \sum_{j \in N_i} \log\big(1 - p(D = 1 \mid i, j)\big),
       \qquad p(D = 1) = \frac{e^s}{e^s + m} = \sigma(s - \log m) \]

    Here \(e^s\) models the ratio \(p^+ / p^-\). A similarity enters with a plus sign. \(1 / (1 + e^{s})\), as
    some papers print it, would push positives apart. Both the m in the posterior and the m before the second
    sum are needed.

    Args:
        S: Table of scores.
        noise_ratio: Number of noise samples for each data sample, m.

    Shapes: a table of n rows gives `(n,)`. A side without candidates counts as 0.

    Requirements: the optimum is \(s = \log p^+(k) / p^-(k)\). If the density of the noise is known and s
    should be \(\log p^+\) instead, subtract its logarithm first: `build_log_ratio_scores`.

    Relations: with m = 1 the loss is minus `jsd_bound`, row by row. With one positive and m negatives it is
    `sigmoid(S - log m)`. `sigmoid` itself (NEG) drops both m. `instance_nce` and `crd` are this loss with
    their own noise densities.

    References: Gutmann, Hyvärinen, AISTATS 2010; Ma, Collins, Noise Contrastive Estimation and Negative
    Sampling for Conditional Models, EMNLP 2018.
    """
    if not noise_ratio > 0:
        raise UsageError(f"binary_nce: noise_ratio, the number of noise samples per data sample, must be greater than 0, got {noise_ratio}")
    odds = S + -math.log(noise_ratio)
    pos, neg, pos_count, neg_count = odds.stats(Scores.pos_softplus, Scores.neg_softplus, Scores.pos_count, Scores.neg_count)
    return pos / pos_count.clamp_min(1) + noise_ratio * neg / neg_count.clamp_min(1)


def build_log_ratio_scores(
    pos_scores: Float[Tensor, "n p"],
    neg_scores: Float[Tensor, "n k"],
    pos_noise_log_density: Float[Tensor, "n p"],
    neg_noise_log_density: Float[Tensor, "n k"],
) -> Scores:
    r"""Build a table of scores minus the known log-density of the noise.

    The entries are \(s(q, k) - \log p^-(k)\).

    Args:
        pos_scores: Scores of p positives for each row.
        neg_scores: Scores of k negatives for each row.
        pos_noise_log_density: Log-density of the noise at the positives.
        neg_noise_log_density: Log-density of the noise at the negatives.

    Relations: `binary_nce(build_log_ratio_scores(…), noise_ratio)` is NCE of a conditional model. The scores
    must be normalized, or learn to be. `ranking_nce(build_log_ratio_scores(…))` is its global form, in which
    the row's constant cancels.
    """
    check_rows(pos_scores=pos_scores, neg_scores=neg_scores)
    check_equal_shapes(pos_scores=pos_scores, pos_noise_log_density=pos_noise_log_density)
    check_equal_shapes(neg_scores=neg_scores, neg_noise_log_density=neg_noise_log_density)
    return Scores.from_lists(pos_scores - pos_noise_log_density, neg_scores - neg_noise_log_density)


def ranking_nce(S: Scores) -> Float[Tensor, " n"]:
    r"""Compute the global NCE loss, which ranks data above noise.

    The loss identifies the candidate that comes from the data:

    \[ \ell_i = -\log \frac{e^{s_{i+}}}{\sum_{k \in K_i} e^{s_{ik}}}, \qquad
       p(i \mid q, K) = \frac{p^+(k_i \mid q) \prod_{j \ne i} p^-(k_j)}{\sum_l p^+(k_l \mid q) \prod_{j \ne l} p^-(k_j)} \]

    The product runs over all *other* candidates. Division by the product over all candidates leaves the
    ratios \(e^s = p^+ / p^-\).

    Relations: this is `info_nce` under its name in language modeling.

    Reference: Jozefowicz et al., Exploring the Limits of Language Modeling, arXiv:1602.02410.
    """
    return info_nce(S)


def negative_sampling(center: Float[Tensor, "n d"], context: Float[Tensor, "n d"], noise: Float[Tensor, "n k d"]) -> Float[Tensor, " n"]:
    r"""Compute the skip-gram loss with negative sampling (NEG, SGNS).

    The score of each pair is a dot product:

    \[ \ell_i = -\log \sigma(u_i^\top v_i) - \sum_{j=1}^k \log \sigma(-\tilde u_{ij}^\top v_i) \]

    Here v is the center word, u a word of its context, and \(\tilde u\) are words drawn from the unigram
    distribution to the power 3/4.

    Args:
        center: Vectors of the center words, v.
        context: Vectors of the context words, u.
        noise: Vectors of k drawn words for each pair, \(\tilde u\).

    Relations: `sigmoid` on `Scores.from_lists`. It is NCE under the assumption \(k\,p^- \equiv 1\). Therefore
    s tends to \(\log p^+ / p^- - \log k\) (shifted pointwise mutual information), and the loss learns no
    density.

    Reference: Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality,
    NIPS 2013.
    """
    check_rows_of_same_shape(center=center, context=context)
    check_rows(center=center, noise=noise)
    v, u, drawn = (dot.prepare_vectors(x) for x in (center, context, noise))
    return sigmoid(Scores.from_lists((u * v).sum(1, keepdim=True), torch.einsum("nd,nkd->nk", v, drawn)))


def logistic_pair(scores: Float[Tensor, " n"], is_positive: Bool[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Compute the binary cross-entropy of single pairs.

    It is \(-y \log \sigma(s) - (1 - y) \log(1 - \sigma(s))\), with y = 1 where `is_positive` is true.

    Relations: `sigmoid` of a table in which every row has one candidate.
    """
    check_rows(1, scores=scores)
    check_masks(scores.shape, is_positive=is_positive)
    return F.softplus(torch.where(is_positive, -scores, scores))

r"""Lower bounds of mutual information, in nats.

The estimates use scores that separate true pairs from shuffled pairs. In a table, positives are drawn
jointly, \((x, y) \sim p(x, y)\), and negatives independently, \(p(x)\,p(y)\). The score is the critic \(T\).
Every function returns one number to be *maximized*; a recipe minimizes its negative. A table without
positives or without negatives gives 0.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows_of_same_shape
from nearfar.core.errors import UsageError
from nearfar.losses.info_nce import info_nce_from_statistics
from nearfar.scores import Number, Scalar, Scores, log_sum_exp


def jsd_bound(S: Scores) -> Float[Tensor, ""]:
    r"""Compute the Jensen-Shannon bound, which grows with mutual information.

    \[ \mathbb E_{p(x, y)}[-\operatorname{sp}(-T)] - \mathbb E_{p(x) p(y)}[\operatorname{sp}(T)],
       \qquad \operatorname{sp}(t) = \log(1 + e^t) \]

    The value bounds \(2\,\text{JS} - 2 \log 2\) from below, where JS is the Jensen-Shannon divergence of the
    joint distribution and the product. JS is not mutual information, but it grows with it. This bound is the
    most stable one to train. At the optimum, T is the log-ratio of the densities.

    Relations: minus the mean of `binary_nce(S, noise_ratio=1)`. Deep InfoMax, DGI, InfoGraph and IS-BERT use
    it.

    References: Nowozin, Cseke, Tomioka, f-GAN, NIPS 2016; Hjelm et al., Learning Deep Representations by
    Mutual Information Estimation and Maximization, ICLR 2019.
    """
    pos, pos_count, neg, neg_count = S.stats(Scores.pos_softplus, Scores.pos_count, Scores.neg_softplus, Scores.neg_count)
    value = -pos.sum() / pos_count.sum().clamp_min(1) - neg.sum() / neg_count.sum().clamp_min(1)
    return _zero_unless_both_sides(value, pos_count, neg_count)


def dv_bound(S: Scores) -> Float[Tensor, ""]:
    r"""Compute the Donsker-Varadhan bound of mutual information.

    \[ I \ge \mathbb E_{p(x, y)}[T] - \log \mathbb E_{p(x) p(y)}[e^T] \]

    The bound is tight if T is the log-ratio plus any constant. On a batch the logarithm of a mean is biased
    upwards, and so is its gradient.

    Relations: MINE maximizes this bound. `tuba_bound` has MINE's corrected gradient if `log_baseline` is a
    running mean of the second term.

    References: Donsker, Varadhan, 1975; Belghazi et al., Mutual Information Neural Estimation, ICML 2018.
    """
    joint, log_mean, pos_count, neg_count = _expectations(S)
    return _zero_unless_both_sides(joint - log_mean, pos_count, neg_count)


def tuba_bound(S: Scores, log_baseline: Scalar) -> Float[Tensor, ""]:
    r"""Compute the TUBA bound of mutual information.

    \[ I \ge \mathbb E_{p(x, y)}[T] - \frac{\mathbb E_{p(x) p(y)}[e^T]}{a} - \log a + 1 \]

    The bound holds for any a > 0. On a batch it is unbiased and has a high variance.

    Args:
        S: Table of scores of the critic T.
        log_baseline: Logarithm of a. A tensor that requires a gradient gets one.

    Relations: the best a is \(\mathbb E[e^T]\), which gives `dv_bound`. a = e gives `nwj_bound`.

    Reference: Poole et al., On Variational Bounds of Mutual Information, ICML 2019.
    """
    joint, log_mean, pos_count, neg_count = _expectations(S)
    return _zero_unless_both_sides(joint - _exp(log_mean - log_baseline) - log_baseline + 1, pos_count, neg_count)


def nwj_bound(S: Scores) -> Float[Tensor, ""]:
    r"""Compute the Nguyen-Wainwright-Jordan bound of mutual information.

    \[ I \ge \mathbb E_{p(x, y)}[T] - e^{-1}\, \mathbb E_{p(x) p(y)}[e^T] \]

    The bound is tight only at T = 1 + log-ratio. Other names are f-GAN's KL bound and MINE-f.

    Reference: Nguyen, Wainwright, Jordan, Estimating Divergence Functionals and the Likelihood Ratio by
    Convex Risk Minimization, 2010.
    """
    return tuba_bound(S, 1.0)


def info_nce_bound(S: Scores) -> Float[Tensor, ""]:
    r"""Compute the InfoNCE bound of mutual information.

    \[ I \ge \log K - \mathcal L_{\text{InfoNCE}} \]

    K is the number of candidates of each row, including its positive. The bound never exceeds log K. It has
    bias instead of variance.

    Requirements: one positive in each row. Rows without a positive are left out.
    """
    all_lse, pos_sum, pos_count, all_count, neg_count = S.stats(
        Scores.all_lse, Scores.pos_sum, Scores.pos_count, Scores.all_count, Scores.neg_count
    )
    row = torch.where(pos_count > 0, all_count.clamp_min(1).log() - info_nce_from_statistics(all_lse, pos_sum, pos_count), 0.0)
    return _zero_unless_both_sides(row.sum() / (pos_count > 0).sum().clamp_min(1), pos_count, neg_count)


def interpolated_bound(S: Scores, info_nce_weight: Number, log_baseline: Scalar = 1.0) -> Float[Tensor, ""]:
    r"""Interpolate between the TUBA and InfoNCE bounds of mutual information.

    `info_nce_weight=0` gives `tuba_bound` (no bias). `info_nce_weight=1` gives InfoNCE (little variance, at
    most log K):

    \[ I \ge 1 + \mathbb E_{p(x_{1:K})\,p(y \mid x_1)}\Big[\log \frac{e^{T(x_1, y)}}{a(y; x_{1:K})}\Big]
              - \mathbb E_{p(x_{1:K})\,p(y)}\Big[\frac{e^{T(x_1, y)}}{a(y; x_{1:K})}\Big], \qquad
       a(y; x_{1:K}) = \alpha\, \frac1K \sum_{i=1}^K e^{T(x_i, y)} + (1 - \alpha)\, q \]

    A row with K negatives serves both expectations. In the second expectation all negatives are \(x_{1:K}\).
    In the first, the positive takes the place of each negative in turn.

    Args:
        S: Table of scores of the critic T.
        info_nce_weight: Weight \(\alpha\), between 0 and 1.
        log_baseline: Logarithm of q.

    Requirements: one positive and at least one negative in every row. Other rows are left out. The table is
    held in memory, since leaving out each negative is not a row statistic. With \(\alpha > 0\) the bound
    reaches at most \(\log(K / \alpha)\).

    Reference: Poole et al., ICML 2019, section 2.3 and equation 11.
    """
    if not 0 <= info_nce_weight <= 1:
        raise UsageError(f"interpolated_bound: info_nce_weight must lie between 0 and 1, got {info_nce_weight}")
    pos, pos_count, lse, count = S.stats(Scores.pos_sum, Scores.pos_count, Scores.neg_lse, Scores.neg_count)
    neg = S.negative_mask
    told = (pos_count > 0) & (count > 0)
    count = count.clamp_min(1)
    others = _log_sum_of_others(torch.where(neg, S.to_dense(), -math.inf), neg)
    swapped = _mixture(torch.logaddexp(others, pos[:, None]) - count.log()[:, None], info_nce_weight, log_baseline)
    joint = pos - torch.where(neg, swapped, 0.0).sum(1) / count
    log_mean = torch.where(told, lse, 0.0) - count.log()
    marginal = _exp(log_mean - _mixture(log_mean, info_nce_weight, log_baseline))
    return torch.where(told, 1 + joint - marginal, 0.0).sum() / told.sum().clamp_min(1)


def becker_hinton(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], eps: Number = 1e-6) -> Float[Tensor, ""]:
    r"""Compute the IMAX estimate of mutual information of two modules' outputs.

    The estimate is the information that the average of the two outputs has about their common signal. All
    distributions are assumed to be Gaussian:

    \[ I = \frac12 \log \frac{\operatorname{Var}(a + b)}{\operatorname{Var}(a - b)} \]

    The estimate is averaged over the d outputs. Variances are over the batch. `eps` is added to them so that
    equal modules give a finite value.

    Requirements: more than one row. With a single row the estimate is 0.

    Relations: the estimate needs no negatives, because the numerator excludes the constant solution. Barlow
    Twins is a descendant.

    Reference: Becker, Hinton, Self-organizing Neural Network that Discovers Surfaces in Random-dot
    Stereograms, Nature 1992.
    """
    check_rows_of_same_shape(a=a, b=b)
    return (_log_variance(a + b, eps) - _log_variance(a - b, eps)).mean() / 2


def _expectations(S: Scores) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the expectations of the bounds.

    Returns:
        The mean of T over true pairs, the logarithm of the mean of e^T over shuffled pairs, and the counts of
        positives and negatives.
    """
    pos, pos_count, neg, neg_count = S.stats(Scores.pos_sum, Scores.pos_count, Scores.neg_lse, Scores.neg_count)
    log_mean = log_sum_exp(neg[None])[0] - neg_count.sum().clamp_min(1).log()
    return pos.sum() / pos_count.sum().clamp_min(1), log_mean, pos_count, neg_count


def _zero_unless_both_sides(value: Tensor, pos_count: Tensor, neg_count: Tensor) -> Tensor:
    return torch.where((pos_count.sum() > 0) & (neg_count.sum() > 0), value, 0.0)


def _exp(x: Tensor) -> Tensor:
    """Compute e^x without overflow.

    Large values follow the tangent, which is still steep and finite.
    """
    knee = math.log(torch.finfo(x.dtype).max) / 2
    return x.clamp_max(knee).exp() * (1 + (x - knee).clamp_min(0))


def _mixture(log_mean: Tensor, info_nce_weight: Number, log_baseline: Scalar) -> Tensor:
    """Compute log(alpha e^log_mean + (1 - alpha) q), exact at both ends."""
    log_baseline = torch.as_tensor(log_baseline, dtype=log_mean.dtype, device=log_mean.device)
    if info_nce_weight in (0, 1):
        return log_mean if info_nce_weight else log_baseline.expand_as(log_mean)
    return torch.logaddexp(log_mean + math.log(info_nce_weight), log_baseline + math.log(1 - info_nce_weight))


def _log_sum_of_others(scores: Float[Tensor, "n m"], there: Tensor) -> Float[Tensor, "n m"]:
    """Compute the log-sum-exp of the row's other entries, for each entry.

    Missing entries are -inf.
    """
    # Subtracting an entry from the sum is safe except for the largest one, which may be nearly the whole sum.
    largest = torch.zeros_like(there).scatter_(1, scores.argmax(1, keepdim=True), True)
    total, rest = log_sum_exp(scores), log_sum_exp(scores.masked_fill(largest, -math.inf))
    share = torch.where(there & ~largest, scores - total[:, None], -1.0).exp()
    left = torch.where(there & ~largest, torch.log1p(-share) + total[:, None], 0.0)
    return torch.where(largest, rest[:, None], left)


def _log_variance(x: Float[Tensor, "n d"], eps: Number) -> Float[Tensor, " d"]:
    return ((x - x.mean(0)).square().mean(0) + eps).log()

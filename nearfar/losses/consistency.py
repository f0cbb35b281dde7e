"""Consistency losses: a classifier predicts the same for a sample and its augmented copies."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows_of_same_shape
from nearfar.core.errors import UsageError
from nearfar.losses.softmax import cross_entropy
from nearfar.scores import Number


def js_divergence(*logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Compute the Jensen-Shannon divergence of several predictions.

    It is \(\frac1v \sum_a \text{KL}(p_a \,\|\, \bar p)\) with \(\bar p\) their mean.

    Shapes: v tensors of logits `(n, c)` give `(n,)`, between 0 (all agree) and log v.
    """
    if not logits:
        raise UsageError("js_divergence: at least one table of logits is needed")
    check_rows_of_same_shape(**{f"logits[{i}]": x for i, x in enumerate(logits)})
    log_p = torch.stack([x.log_softmax(1) for x in logits])
    log_mean = log_p.logsumexp(0) - math.log(len(logits))
    return (log_p.exp() * (log_p - log_mean)).sum(2).mean(0)


def cutoff_consistency(
    logits: Float[Tensor, "n c"],
    augmented_logits: Float[Tensor, "v n c"],
    labels: Int[Tensor, " n"],
    augmented_weight: Number = 1.0,
    consistency_weight: Number = 1.0,
) -> Float[Tensor, ""]:
    r"""Compute the supervised and consistency losses of Cutoff augmentation.

    \[ \mathcal L = \text{CE}(p, y) + \alpha \sum_{a=1}^v \text{CE}(p_a, y) + \beta\, \text{JS}(p, p_1, \dots, p_v) \]

    Here \(p_a\) are the predictions for copies from which tokens, features or a span were cut off. The
    consistency term is the Jensen-Shannon divergence. Unlike a KL divergence from one prediction to another,
    it is symmetric and bounded.

    Args:
        logits: Logits of the samples.
        augmented_logits: Logits of v augmented copies of each sample.
        labels: Class labels, -1 if unknown.
        augmented_weight: Weight of the cross-entropy of the copies, \(\alpha\).
        consistency_weight: Weight of the Jensen-Shannon divergence, \(\beta\).

    Requirements: rows with label -1 (unknown) take part in the consistency term only.

    Reference: Shen et al., A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language
    Understanding and Generation, arXiv:2009.13818.
    """
    supervised = cross_entropy(logits, labels) + augmented_weight * sum(cross_entropy(c, labels) for c in augmented_logits)
    return supervised + consistency_weight * js_divergence(logits, *augmented_logits).mean()


def uda(
    logits: Float[Tensor, "n c"], augmented_logits: Float[Tensor, "n c"], temperature: Number = 1.0, confidence_threshold: Number = 0.0
) -> Float[Tensor, ""]:
    r"""Compute the UDA consistency loss of unlabeled samples.

    \[ \mathcal L = \frac1n \sum_i \text{KL}\big(\operatorname{sg} p(\cdot \mid x_i) \,\|\, p(\cdot \mid \tilde x_i)\big) \]

    The prediction for the original sample is the target and gets no gradient.

    Args:
        logits: Logits of the original samples.
        augmented_logits: Logits of the augmented samples.
        temperature: Temperature of the target. Values below 1 sharpen it.
        confidence_threshold: Rows whose largest target probability is below this value count as 0.

    Relations: UDA adds this to a supervised loss. `js_divergence` treats all copies alike.

    Reference: Xie et al., Unsupervised Data Augmentation for Consistency Training, NeurIPS 2020.
    """
    check_rows_of_same_shape(logits=logits, augmented_logits=augmented_logits)
    check_positive(temperature=temperature)
    logits = logits.detach()
    sure = (logits.softmax(1).amax(1) >= confidence_threshold).to(logits)
    log_target = (logits / temperature).log_softmax(1)
    divergence = (log_target.exp() * (log_target - augmented_logits.log_softmax(1))).sum(1)
    return (divergence * sure).mean()

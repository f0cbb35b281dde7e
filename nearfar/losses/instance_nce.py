"""Instance discrimination with NCE: each sample is its own class, and NCE replaces the full softmax."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.losses.nce import binary_nce
from nearfar.scores import Number, Scalar, Scores, log_sum_exp


def instance_nce(S: Scores, num_samples: int, noise_ratio: Number, log_partition: Scalar) -> Float[Tensor, " n"]:
    r"""Compute binary NCE of the non-parametric softmax over all samples.

    The noise is uniform:

    \[ \ell_i = -\log h(i, f_i) - m\,\mathbb E_{j \sim P_n} \log(1 - h(j, f_i)), \qquad
       h(i, f) = \frac{P(i \mid f)}{P(i \mid f) + m P_n(i)}, \quad P(i \mid f) = \frac{e^{v_i^\top f / \tau}}{Z}, \quad P_n(i) = \frac1N \]

    Here \(f_i\) is the network's vector, \(v_j\) are the stored vectors, and N is `num_samples`.

    Args:
        S: Table of scores divided by the temperature:
            `Scores.from_matched(f, bank[ids], negatives=bank[drawn]) / temperature`.
        num_samples: Number of samples in the dataset, N.
        noise_ratio: Number of noise samples for each data sample, m.
        log_partition: Constant \(\log Z\). Estimate it once with `estimate_log_partition` and store it in the
            network.

    Shapes: returns `(n,)`. `drawn` holds any number of uniformly drawn ids, shared by the rows. With
    `Scores.from_lists` each row has its own ids.

    Relations: this is the binary form, not the ranking form (`info_nce` on the same table). The paper adds
    lambda times `proximal_penalty(f, bank[ids])`. The loss approximates `instance_softmax`.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    if num_samples < 1:
        raise UsageError(f"instance_nce: num_samples must be at least 1, got {num_samples}")
    return binary_nce(S + (math.log(num_samples) - log_partition), noise_ratio)


def estimate_log_partition(S: Scores, num_samples: int) -> Float[Tensor, ""]:
    r"""Estimate the log-partition function of a softmax over all samples.

    The table's negatives are a uniform sample of all N = `num_samples` vectors:

    \[ Z \simeq \frac{N}{m} \sum_{k=1}^m e^{v_{j_k}^\top f_i / \tau} \]

    The estimate of \(\log Z\) is averaged over the rows. A table without negatives gives log N, as if all
    scores were 0.
    """
    lse, count = S.stats(Scores.neg_lse, Scores.neg_count)
    drawn = count.sum()
    mean = log_sum_exp(lse[None])[0] - drawn.clamp_min(1).log()
    return mean.where(drawn > 0, 0.0) + math.log(num_samples)

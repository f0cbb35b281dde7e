"""Instance discrimination: every sample is a class of its own, and NCE stands in for a softmax over all of them."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.losses.nce import binary_nce
from nearfar.scores import Number, Scalar, Scores, log_sum_exp


def instance_nce(S: Scores, num_samples: int, noise_ratio: Number, log_partition: Scalar) -> Float[Tensor, " n"]:
    r"""Binary NCE of the non-parametric softmax over `total` instances, against uniform noise:

    \[ \ell_i = -\log h(i, f_i) - m\,\mathbb E_{j \sim P_n} \log(1 - h(j, f_i)), \qquad
       h(i, f) = \frac{P(i \mid f)}{P(i \mid f) + m P_n(i)}, \quad P(i \mid f) = \frac{e^{v_i^\top f / \tau}}{Z}, \quad P_n(i) = \frac1N \]

    with \(f_i\) the network's vector and \(v_j\) the remembered ones, N = `total`.

    Shapes: `instance_nce(matched(f, bank[ids], against=bank[drawn]) / tau, len(bank), m, log_z)` gives `(n,)`. `drawn`
    are any number of uniformly drawn ids, shared by the rows; `listed` scores give each row its own.

    Requirements: `log_z` is a constant, estimated once by `log_partition` and kept in the net.

    Relations: the binary form, not the ranking one (`info_nce` on the same table). The paper adds lambda times
    `proximal(f, bank[ids])`. `instance_softmax` is what it approximates.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    if num_samples < 1:
        raise UsageError(f"instance_nce: num_samples must be at least 1, got {num_samples}")
    return binary_nce(S + (math.log(num_samples) - log_partition), noise_ratio)


def estimate_log_partition(S: Scores, num_samples: int) -> Float[Tensor, ""]:
    r"""\(\log Z\) of a softmax over `total` instances from some drawn uniformly, which are the table's negatives:

    \[ Z \simeq \frac{N}{m} \sum_{k=1}^m e^{v_{j_k}^\top f_i / \tau} \]

    averaged over the rows. Of a table without negatives: log N, as if all scores were 0.
    """
    lse, count = S.stats(Scores.neg_lse, Scores.neg_count)
    drawn = count.sum()
    mean = log_sum_exp(lse[None])[0] - drawn.clamp_min(1).log()
    return mean.where(drawn > 0, 0.0) + math.log(num_samples)

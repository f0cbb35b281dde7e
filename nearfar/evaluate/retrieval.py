"""Retrieval metrics for passages, and a test of their differences.

The metrics are top-k accuracy, mean reciprocal rank and mean average precision. A paired bootstrap tests
differences. The metrics take `is_relevant` (q, k): for each question, True where the first, second, …
retrieved passage answers it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from nearfar.core import DataError, RandomKey
from nearfar.evaluate.input_checks import require_finite
from nearfar.evaluate.sts import BootstrapDifference

RESAMPLES_PER_BLOCK = 500


def top_k_accuracy(is_relevant: Bool[Tensor, "q k"], k: int) -> Float64[Tensor, " q"]:
    """Compute the top-k hits of each question.

    The value is 1 for a question with a relevant passage among its first `k`, else 0. The mean is the top-k
    accuracy.
    """
    if not 1 <= k <= is_relevant.shape[1]:
        raise DataError(f"top-{k} accuracy needs at least {max(k, 1)} retrieved passages for each question, got {is_relevant.shape[1]}")
    return is_relevant[:, :k].any(1).double()


def reciprocal_rank(is_relevant: Bool[Tensor, "q k"]) -> Float64[Tensor, " q"]:
    """Compute the reciprocal rank of each question.

    The value is 1 / rank of the first relevant passage, and 0 if no relevant passage was found. The mean is
    the MRR.
    """
    rank = 1 + is_relevant.double().argmax(1)
    return torch.where(is_relevant.any(1), 1 / rank.double(), 0.0)


def average_precision(is_relevant: Bool[Tensor, "q k"], relevant_counts: Int64[Tensor, " q"]) -> Float64[Tensor, " q"]:
    r"""Compute the average precision of each question (`map` in trec_eval).

    The value is \( \frac1R \sum_{r: \text{found}} \text{precision at } r \), where R is the number of
    relevant passages in the corpus (`relevant_counts`).

    A question without a relevant passage gets 0. Leave such questions out of the mean.
    """
    hits = is_relevant.double()
    precision = hits.cumsum(1) / torch.arange(1, is_relevant.shape[1] + 1, dtype=torch.float64, device=is_relevant.device)
    return (precision * hits).sum(1) / relevant_counts.double().clamp_min(1)


def summarize_retrieval(
    is_relevant: Bool[Tensor, "q k"], relevant_counts: Int64[Tensor, " q"], ks: Sequence[int] = (1, 5, 20)
) -> dict[str, float]:
    """Compute the means of all metrics over questions."""
    measured = {f"top-{k}": top_k_accuracy(is_relevant, k) for k in ks if k <= is_relevant.shape[1]}
    measured |= {"MRR": reciprocal_rank(is_relevant), "MAP": average_precision(is_relevant, relevant_counts)}
    return {name: float(values.mean()) for name, values in measured.items()}


def paired_bootstrap(
    ours: Float[Tensor, " q"],
    theirs: Float[Tensor, " q"],
    rng_key: RandomKey,
    draws: int = 10_000,
    groups: Int64[Tensor, " q"] | None = None,
) -> BootstrapDifference:
    """Estimate the difference of two metrics on the same questions by bootstrap.

    Questions are drawn with replacement, the same ones for both metrics.

    Args:
        ours: First metric of each question (q,).
        theirs: Second metric of each question (q,).
        rng_key: Random key.
        draws: Number of bootstrap samples.
        groups: Group of each question (q,). Whole groups are drawn instead of questions, because questions
            about one article are not independent.

    Returns:
        Difference `ours - theirs` with its standard error and 95 % interval.

    Reference: Efron & Tibshirani, An Introduction to the Bootstrap, 1993.
    """
    if ours.shape != theirs.shape or not len(ours):
        raise DataError(f"paired_bootstrap: both must measure the same questions, got {len(ours)} and {len(theirs)}")
    require_finite(ours, "paired_bootstrap, our measures")
    require_finite(theirs, "paired_bootstrap, their measures")
    difference = (ours - theirs).double()
    group = torch.arange(len(ours), device=ours.device) if groups is None else torch.unique(groups, return_inverse=True)[1]
    n = int(group.max()) + 1
    empty = torch.zeros(n, dtype=torch.float64, device=ours.device)
    total, size = empty.index_add(0, group, difference), empty.index_add(0, group, torch.ones_like(difference))
    means = []
    for slots in torch.arange(draws, device=ours.device).split(RESAMPLES_PER_BLOCK):
        chosen = rng_key("bootstrap").integers(slots, n, n)
        means.append(total[chosen].sum(1) / size[chosen].sum(1))
    drawn = torch.cat(means)
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=drawn.dtype, device=drawn.device)).tolist()
    return BootstrapDifference(float(difference.mean()), float(drawn.std()), low, high)

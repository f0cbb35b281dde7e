"""Search results with tied scores: the expectation over all orders of equal scores."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

TieCounts = tuple[Int64[Tensor, " n"], Int64[Tensor, " n"], Int64[Tensor, " n"]]
"""Counts of candidates for each query, relative to its best correct candidate.

They are the wrong candidates above it, the wrong ones tied with it, and the correct ones tied with it (itself
included).
"""


def count_above_and_tied(scores: Float[Tensor, "n m"], correct_pairs: Int64[Tensor, "p 2"]) -> TieCounts:
    """Count candidates above and tied with the best correct candidate.

    The counts are for each query. Larger scores are better. A score of -inf is below every finite score and
    marks a column that is not a candidate. Reject NaN first: no comparison with NaN is true.

    Args:
        scores: Scores of all candidates (n, m).
        correct_pairs: Pairs (query, candidate) (p, 2), at least one for every query.
    """
    row, own = correct_pairs[:, 0], scores[correct_pairs[:, 0], correct_pairs[:, 1]]
    best = torch.full((len(scores),), -torch.inf, dtype=scores.dtype, device=scores.device).scatter_reduce(0, row, own, "amax")
    above = (scores > best[:, None]).sum(1)
    right_equal = torch.zeros_like(above).index_add(0, row, (own == best[row]).long())
    return above, (scores == best[:, None]).sum(1) - right_equal, right_equal


def compute_hit_probability(tie_counts: TieCounts, k: int) -> Float64[Tensor, " n"]:
    r"""Return the probability that a correct candidate is among the first k.

    All orders of equal scores are equally likely. With g wrong candidates above the best correct one, and e
    wrong and o correct ones tied with it, the probability is \( 1 - \binom{e}{t} / \binom{e + o}{t} \) with
    t = k - g places left.
    """
    above, wrong_equal, right_equal = tie_counts
    left = (k - above).clamp_min(0).double()
    wrong, right = wrong_equal.double(), right_equal.double()
    missed = torch.exp(_log_choose(wrong, left.minimum(wrong)) - _log_choose(wrong + right, left.minimum(wrong + right)))
    return torch.where(left > wrong, 1.0, 1 - missed)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)

"""Row statistics of a score table, from which pairwise losses are computed.

A statistic names a candidate set of each row (positives, negatives or all candidates) and a reduction of the
scores in this set. `combine` joins the statistics of two parts of a row into the statistic of the whole row.
A table can therefore have private candidates in addition to shared columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.scores.candidate_roles import CandidateRoles, CandidateSet
from nearfar.scores.rowmap import refuse_second_derivative
from nearfar.scores.score import Number

if TYPE_CHECKING:
    from nearfar.scores.table import Scores


@dataclass(frozen=True)
class Statistic:
    r"""Reduction of the scores of one candidate set to one number per row.

    The sums run over the candidates \(j\) of the set.

    | reduction | value | empty set |
    |---|---|---|
    | count | \(\sum_j 1\) | 0 |
    | sum | \(\sum_j s_j\) | 0 |
    | lse | \(\log \sum_j e^{p\,s_j}\), p the power | \(-\infty\), gradient 0 |
    | softplus | \(\sum_j \log(1 + e^{\mp s_j})\): \(-\) for positives, \(+\) for negatives | 0 |

    As an attribute of a table it is the value: `S.pos_sum`. As an attribute of the class it is the statistic
    itself: `S.stats(Scores.pos_sum)`.
    """

    candidate_set: CandidateSet
    reduction: Literal["count", "sum", "lse", "softplus"]
    power: Number = 1

    def with_power(self, power: Number) -> Statistic:
        """Return the statistic of the scores times `power`, for log-sum-exps.

        The power reweights the candidates. Power 0 gives the logarithm of the number of candidates.
        """
        return replace(self, power=power)

    @overload
    def __get__(self, table: None, owner: type) -> Statistic: ...
    @overload
    def __get__(self, table: Scores, owner: type) -> Tensor: ...
    def __get__(self, table, owner):
        return self if table is None else table.stats(self)[0]


POS_COUNT, NEG_COUNT, ALL_COUNT = (Statistic(side, "count") for side in ("pos", "neg", "all"))
POS_SUM, NEG_SUM = (Statistic(side, "sum") for side in ("pos", "neg"))
POS_LSE, NEG_LSE, ALL_LSE = (Statistic(side, "lse") for side in ("pos", "neg", "all"))
POS_SOFTPLUS, NEG_SOFTPLUS = (Statistic(side, "softplus") for side in ("pos", "neg"))


def compute_row_statistics(
    requested: Sequence[Statistic], scores: Float[Tensor, "n m"], relation: CandidateRoles
) -> tuple[Float[Tensor, " n"], ...]:
    """Compute statistics of a dense table, each (n,).

    All statistics share one derivative table.
    """
    return _RowStatistics.apply(tuple(requested), scores, relation)  # type: ignore[return-value]


def combine(statistic: Statistic, a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Combine the statistics of two parts of each row."""
    return log_add_exp(a, b) if statistic.reduction == "lse" else a + b


def log_add_exp(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Compute log(e^a + e^b).

    The result is -inf with zero gradient if both are -inf, where the gradient of `torch.logaddexp` is NaN.
    """
    return log_sum_exp(torch.stack([a, b], 1))


def log_sum_exp(table: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
    """Compute the log-sum-exp of each row.

    The result is -inf with zero gradient if all entries are -inf, where the gradient of `torch.logsumexp` is
    NaN.
    """
    return compute_row_statistics([ALL_LSE], table, CandidateRoles(table.shape[1], excluded_mask=table == -math.inf))[0]


class _RowStatistics(torch.autograd.Function):
    """Autograd function of row statistics.

    Forward computes each value and its slope, the derivative with respect to the scores. Backward sums the
    slopes.
    """

    @staticmethod
    def forward(ctx, asked: tuple[Statistic, ...], scores: Tensor, relation: CandidateRoles):
        found = [_value_and_slope(what, scores, relation) for what in asked]
        values = tuple(value for value, _ in found)
        ctx.asked, ctx.relation, ctx.shape = asked, relation, scores.shape
        ctx.save_for_backward(*values, *(slope for _, slope in found))
        ctx.mark_non_differentiable(*(value for value, slope in found if slope is None))
        ctx.set_materialize_grads(False)
        return values

    @staticmethod
    def backward(ctx, *grads: Tensor | None):
        refuse_second_derivative("row statistics")
        relation: CandidateRoles = ctx.relation
        saved = ctx.saved_tensors
        values, slopes = saved[: len(grads)], saved[len(grads) :]
        total, of_listed = None, []
        for what, value, slope, grad in zip(ctx.asked, values, slopes, grads, strict=True):
            if slope is None or grad is None:
                continue
            if what.reduction == "lse" and not relation.get_fixed_count(what.candidate_set):
                grad = grad.masked_fill(value == -math.inf, 0.0)
            share = slope * (grad if what.power == 1 else grad * what.power)[:, None]
            if what.candidate_set == "pos" and relation.positive_columns is not None:
                of_listed.append(share)
            else:
                total = share if total is None else total.add_(share)
        for share in of_listed:
            total = share.new_zeros(ctx.shape) if total is None else total
            total.scatter_add_(1, relation.positive_columns, share.expand_as(relation.positive_columns))
        return None, total, None


def _value_and_slope(what: Statistic, scores: Tensor, relation: CandidateRoles) -> tuple[Tensor, Tensor | None]:
    """Return the statistic and its derivative.

    The derivative is with respect to the scores of `relation.select_scores`. The fill value of the other
    columns is chosen so that their derivative is 0.
    """
    largest = torch.finfo(scores.dtype).max
    if what.reduction == "count":
        return relation.count(what.candidate_set, scores), None
    if what.reduction == "sum":
        one = scores.new_ones(1, 1)
        listed = what.candidate_set == "pos" and relation.positive_columns is not None
        return relation.select_scores(scores, what.candidate_set, 0.0).sum(1), one if listed else relation.select_scores(
            one.expand_as(scores), what.candidate_set, 0.0
        )
    if what.reduction == "lse":
        powered = scores if what.power == 1 else scores * what.power
        value, weights = _log_sum_exp(relation.select_scores(powered, what.candidate_set, -largest))
        return value if relation.get_fixed_count(what.candidate_set) else value.masked_fill_(value < -largest / 2, -math.inf), weights
    sign = -1 if what.candidate_set == "pos" else 1
    part = sign * relation.select_scores(scores, what.candidate_set, -sign * largest)
    return F.softplus(part).sum(1), sign * part.sigmoid()


def _log_sum_exp(part: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-sum-exp of each row and its slope, the softmax.

    Softmax is torch's fastest row kernel. Its largest entry is e^max / sum, which gives the value.
    """
    if part.shape[1] == 0:
        return part.new_full(part.shape[:1], -math.inf), part
    weights = part.softmax(1)
    return part.amax(1) - weights.amax(1).log(), weights

"""Row statistics of a score table: what of it a pairwise loss needs to know.

A statistic names a side of each row (its positives, its negatives, all its candidates) and what is made of the
scores there. Statistics of two parts of a row combine into that of the whole row (`combine`), which is what lets
private candidates stand beside shared ones.
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
    r"""One number for each row, over the candidates \(j\) on one side of it.

    | kind | value | of an empty set |
    |---|---|---|
    | count | \(\sum_j 1\) | 0 |
    | sum | \(\sum_j s_j\) | 0 |
    | lse | \(\log \sum_j e^{p\,s_j}\), p the power | \(-\infty\), gradient 0 |
    | softplus | \(\sum_j \log(1 + e^{\mp s_j})\): \(-\) for positives, \(+\) for negatives | 0 |

    As an attribute of `Scores` it is the value: `S.pos_sum`; of the class it is the name: `S.stats(Scores.pos_sum)`.
    """

    candidate_set: CandidateSet
    reduction: Literal["count", "sum", "lse", "softplus"]
    power: Number = 1

    def with_power(self, power: Number) -> Statistic:
        """The log-sum-exp of the scores times `power`: reweighted candidates; at(0) is the log of their number."""
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
    """Statistics of a dense table, with one derivative table for all of them."""
    return _RowStatistics.apply(tuple(requested), scores, relation)  # type: ignore[return-value]


def combine(statistic: Statistic, a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The statistic of two parts of each row taken together."""
    return log_add_exp(a, b) if statistic.reduction == "lse" else a + b


def log_add_exp(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(e^a + e^b); -inf with zero gradient where both are -inf (`torch.logaddexp` has NaN there)."""
    return log_sum_exp(torch.stack([a, b], 1))


def log_sum_exp(table: Float[Tensor, "n m"]) -> Float[Tensor, " n"]:
    """log-sum-exp of each row; -inf with zero gradient where all entries are -inf (`torch.logsumexp` has NaN there)."""
    return compute_row_statistics([ALL_LSE], table, CandidateRoles(table.shape[1], excluded_mask=table == -math.inf))[0]


class _RowStatistics(torch.autograd.Function):
    """Forward finds each value with its slope, the derivative by the scores; backward adds up the slopes."""

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
    """The statistic and its derivative by the scores of `relation.part`; absent scores are such that theirs is 0."""
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
    """Softmax first: it is torch's fastest row kernel, its largest entry is e^max / sum, and it is the slope."""
    if part.shape[1] == 0:
        return part.new_full(part.shape[:1], -math.inf), part
    weights = part.softmax(1)
    return part.amax(1) - weights.amax(1).log(), weights

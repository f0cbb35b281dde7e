"""Which candidates to learn from: the hardest, the semi-hard, some at random, some by their distance.

Each function looks at a table in blocks and returns the numbers of k shared columns for each row, -1 where there are
no more. `only_negatives(S, columns)` is then the table that has those negatives alone. Nothing here has a gradient.
Selections by score take a candidate whose score is NaN first, so that the loss on the selected ones is NaN too.

The other usual choices need no mining: the rest of the batch (`pairs`, `views`, `labelled`), a queue or a bank
(`matched(q, k, against=queue)`), known false negatives taken out (`S.skip`), unknown ones corrected for (`debiased`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey
from nearfar.losses.dense_rows import map_dense_rows
from nearfar.scores import Number, Scores, dot, l2_normalize


def mine_hardest_negatives(S: Scores, num_negatives: int) -> Int[Tensor, "n _"]:
    r"""The k negatives of each row with the highest scores, hardest first.

    Shapes: `(n, min(k, m))` columns. Hard negatives without labels are often false ones: see `debiased`, `semi_hard_negatives`.
    """
    return _select_best(S, num_negatives, lambda scores, pos, neg: torch.where(neg, scores, -math.inf))


def mine_semi_hard_negatives(S: Scores, num_negatives: int, margin: Number = math.inf) -> Int[Tensor, "n _"]:
    r"""The k hardest negatives that lie beyond the row's farthest positive, \(s^+ - m < s_j < s^+\), hardest first.

    Shapes: `(n, min(k, m))` columns; all -1 for a row without positives.

    Reference: Schroff, Kalenichenko, Philbin, FaceNet, CVPR 2015.
    """

    def value(scores: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        farthest = torch.where(pos, scores, math.inf).amin(1, keepdim=True)
        # Written as what is left out: no comparison with NaN is true, and NaN must be selected.
        beyond = neg & ~(scores >= farthest) & ~(scores <= farthest - margin) & (farthest != math.inf)
        return torch.where(beyond, scores, -math.inf)

    return _select_best(S, num_negatives, value)


def mine_nearest_positives(S: Scores, num_positives: int) -> Int[Tensor, "n _"]:
    """The k positives of each row with the highest scores, nearest first: target neighbours, easy positives."""
    return _select_best(S, num_positives, lambda scores, pos, neg: torch.where(pos, scores, -math.inf))


def draw_random_negatives(S: Scores, num_negatives: int, rng_key: RandomKey, slots: Int[Tensor, " n"]) -> Int[Tensor, "n _"]:
    """k negatives of each row, drawn uniformly without replacement: what other choices must be better than."""
    return _draw_weighted(S, num_negatives, rng_key, slots, torch.zeros_like)


def draw_distance_weighted_negatives(
    S: Scores, num_negatives: int, rng_key: RandomKey, slots: Int[Tensor, " n"], distance_floor: Number = 0.5, max_distance: Number = 1.4
) -> Int[Tensor, "n _"]:
    r"""k negatives of each row, drawn without replacement such that all distances are about equally frequent.

    Distances of random points on the sphere crowd around \(\sqrt 2\), with density

    \[ q(D) \propto D^{d - 2} \big(1 - \tfrac14 D^2\big)^{(d - 3) / 2}, \]

    so a negative at distance D is drawn with weight \(\min(\lambda, q(D)^{-1})\), where \(\lambda = q(\texttt{nearest})^{-1}\)
    keeps the few that are very near (and noisy) from being drawn always. Beyond `farthest` the loss is 0 anyway and
    nobody is drawn, unless there is nobody else.

    Shapes: `(n, min(k, m))` columns. The numbers drawn belong to (key, slot, column).

    Requirements: vectors; their directions are what is compared, whatever the table's score.

    Reference: Wu, Manmatha, Smola, Krähenbühl, Sampling Matters in Deep Embedding Learning, ICCV 2017.
    """
    if S.query.dim() != 2:
        raise UsageError(f"draw_distance_weighted_negatives: rows must be vectors, got a query of shape {tuple(S.query.shape)}")
    d = S.query.shape[1]

    def log_weight(cosines: Tensor) -> Tensor:
        weight = _log_inverse_density(2 - 2 * cosines, d)
        most = _log_inverse_density(torch.full_like(cosines[:1, :1], distance_floor**2), d)
        hopeless = -4.0 * d - 100  # below every weight within reach, yet small enough to leave the random part its digits
        return torch.where(2 - 2 * cosines >= max_distance**2, hopeless, torch.minimum(weight, most))

    on_sphere = replace(S, query=l2_normalize(S.query), key=l2_normalize(S.key), score=dot, scale=1, bias=0)
    return _draw_weighted(on_sphere, num_negatives, rng_key, slots, log_weight)


def _log_inverse_density(squared: Tensor, d: int) -> Tensor:
    tiny = torch.finfo(squared.dtype).tiny
    return (2 - d) / 2 * squared.clamp_min(tiny).log() - (d - 3) / 2 * (1 - squared / 4).clamp_min(tiny).log()


def _draw_weighted(S: Scores, num_negatives: int, rng_key: RandomKey, slots: Tensor, log_weight) -> Tensor:
    """Gumbel's trick: the k largest of log-weights plus Gumbel noise are a draw without replacement."""

    def value(scores: Tensor, pos: Tensor, neg: Tensor, slots: Tensor) -> Tensor:
        u = rng_key.uniform(slots, scores.shape[1]).to(scores)
        waiting = -torch.log1p(-u).clamp_max(-(2.0**-25))  # u may be 0, which would win against any weight
        return torch.where(neg, log_weight(scores) - waiting.log(), -math.inf)

    return _select_best(S, num_negatives, value, (slots,))


def _select_best(S: Scores, num_candidates: int, value, rows: tuple[Tensor, ...] = ()) -> Tensor:
    """The k shared columns with the largest values; -1 where the value is -inf."""
    if num_candidates < 1:
        raise UsageError(f"mining: the number of candidates for each row must be at least 1, got {num_candidates}")
    columns = len(S.key)
    none = torch.zeros(len(S), 0, dtype=torch.long, device=S.query.device)

    def chosen(scores: Tensor, pos: Tensor, neg: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        best, at = value(scores, pos, neg, *rows)[:, :columns].topk(min(num_candidates, columns), dim=1)
        return (at.masked_fill(best == -math.inf, -1),)

    with torch.no_grad():
        return map_dense_rows(S, chosen, rows)[0] if columns else none

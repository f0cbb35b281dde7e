"""Selection of candidates: hardest, semi-hard, random or by distance.

Each function reads a table in blocks. It returns the indices of k shared columns for each row, -1 where there
are no more. `select_negatives(S, columns)` builds the table with these negatives only. Nothing here has a
gradient. Selections by score take candidates with a NaN score first, so that the loss on the selected
candidates is NaN too.

Other common choices need no mining. The rest of the batch comes from `Scores.from_pairs`, `Scores.from_views`
or `Scores.from_labels`. A queue or a memory bank comes from `Scores.from_matched(q, k, negatives=queue)`.
`S.exclude_negatives` leaves out known false negatives. `debiased` corrects for unknown ones.
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
    """Select the negatives of each row with the highest scores, hardest first.

    Shapes: `(n, min(num_negatives, m))` columns, where m is the number of shared columns. Hard negatives
    without labels are often false negatives: see `debiased` and `mine_semi_hard_negatives`.
    """
    return _select_best(S, num_negatives, lambda scores, pos, neg: torch.where(neg, scores, -math.inf))


def mine_semi_hard_negatives(S: Scores, num_negatives: int, margin: Number = math.inf) -> Int[Tensor, "n _"]:
    r"""Select the hardest negatives beyond each row's farthest positive, hardest first.

    These negatives have \(s^+ - m < s_j < s^+\), with m the `margin`.

    Shapes: `(n, min(num_negatives, m))` columns, where m is the number of shared columns; all -1 for a row
    without positives.

    Reference: Schroff, Kalenichenko, Philbin, FaceNet, CVPR 2015.
    """

    def value(scores: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        farthest = torch.where(pos, scores, math.inf).amin(1, keepdim=True)
        # Negated comparisons: every comparison with NaN is false, and NaN must be selected.
        beyond = neg & ~(scores >= farthest) & ~(scores <= farthest - margin) & (farthest != math.inf)
        return torch.where(beyond, scores, -math.inf)

    return _select_best(S, num_negatives, value)


def mine_nearest_positives(S: Scores, num_positives: int) -> Int[Tensor, "n _"]:
    """Select the positives of each row with the highest scores, nearest first.

    They are the target neighbors of `lmnn` and the positives of easy positive mining.
    """
    return _select_best(S, num_positives, lambda scores, pos, neg: torch.where(pos, scores, -math.inf))


def draw_random_negatives(S: Scores, num_negatives: int, rng_key: RandomKey, slots: Int[Tensor, " n"]) -> Int[Tensor, "n _"]:
    """Draw negatives of each row uniformly without replacement.

    Random negatives are the baseline for the other selections.
    """
    return _draw_weighted(S, num_negatives, rng_key, slots, torch.zeros_like)


def draw_distance_weighted_negatives(
    S: Scores, num_negatives: int, rng_key: RandomKey, slots: Int[Tensor, " n"], distance_floor: Number = 0.5, max_distance: Number = 1.4
) -> Int[Tensor, "n _"]:
    r"""Draw negatives so that all distances are about equally frequent.

    The draw is without replacement. Distances of random points on the sphere concentrate around \(\sqrt 2\),
    with density

    \[ q(D) \propto D^{d - 2} \big(1 - \tfrac14 D^2\big)^{(d - 3) / 2}, \]

    A negative at distance D is therefore drawn with weight \(\min(\lambda, q(D)^{-1})\). The cap
    \(\lambda = q(D_{\min})^{-1}\), with \(D_{\min}\) = `distance_floor`, keeps the few very near (and noisy)
    negatives from being drawn every time. Beyond `max_distance` the loss is 0, so no negative is drawn from
    there unless the row has no other.

    Args:
        S: Table whose rows and columns are vectors. The function compares their directions and ignores the
            table's score.
        num_negatives: Number of negatives for each row.
        rng_key: Random key. The random numbers depend on the key, the slot and the column.
        slots: Slot of each row.
        distance_floor: Nearer negatives have the same weight as one at this distance.
        max_distance: Distance from which on negatives are drawn last.

    Shapes: `(n, min(num_negatives, m))` columns, where m is the number of shared columns.

    Raises:
        UsageError: The rows are not vectors.

    Reference: Wu, Manmatha, Smola, Krähenbühl, Sampling Matters in Deep Embedding Learning, ICCV 2017.
    """
    if S.query.dim() != 2:
        raise UsageError(f"draw_distance_weighted_negatives: rows must be vectors, got a query of shape {tuple(S.query.shape)}")
    d = S.query.shape[1]

    def log_weight(cosines: Tensor) -> Tensor:
        weight = _log_inverse_density(2 - 2 * cosines, d)
        most = _log_inverse_density(torch.full_like(cosines[:1, :1], distance_floor**2), d)
        # Below every weight within reach, but small enough to keep the precision of the random part.
        hopeless = -4.0 * d - 100
        return torch.where(2 - 2 * cosines >= max_distance**2, hopeless, torch.minimum(weight, most))

    on_sphere = replace(S, query=l2_normalize(S.query), key=l2_normalize(S.key), score=dot, scale=1, bias=0)
    return _draw_weighted(on_sphere, num_negatives, rng_key, slots, log_weight)


def _log_inverse_density(squared: Tensor, d: int) -> Tensor:
    tiny = torch.finfo(squared.dtype).tiny
    return (2 - d) / 2 * squared.clamp_min(tiny).log() - (d - 3) / 2 * (1 - squared / 4).clamp_min(tiny).log()


def _draw_weighted(S: Scores, num_negatives: int, rng_key: RandomKey, slots: Tensor, log_weight) -> Tensor:
    """Draw negatives without replacement with the Gumbel trick.

    The columns with the k largest sums of log-weight and Gumbel noise are such a draw.
    """

    def value(scores: Tensor, pos: Tensor, neg: Tensor, slots: Tensor) -> Tensor:
        u = rng_key.uniform(slots, scores.shape[1]).to(scores)
        waiting = -torch.log1p(-u).clamp_max(-(2.0**-25))  # u may be 0, which would exceed any weight
        return torch.where(neg, log_weight(scores) - waiting.log(), -math.inf)

    return _select_best(S, num_negatives, value, (slots,))


def _select_best(S: Scores, num_candidates: int, value, rows: tuple[Tensor, ...] = ()) -> Tensor:
    """Select the shared columns with the largest values; -1 where the value is -inf."""
    if num_candidates < 1:
        raise UsageError(f"mining: the number of candidates for each row must be at least 1, got {num_candidates}")
    columns = len(S.key)
    none = torch.zeros(len(S), 0, dtype=torch.long, device=S.query.device)

    def chosen(scores: Tensor, pos: Tensor, neg: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        best, at = value(scores, pos, neg, *rows)[:, :columns].topk(min(num_candidates, columns), dim=1)
        return (at.masked_fill(best == -math.inf, -1),)

    with torch.no_grad():
        return map_dense_rows(S, chosen, rows)[0] if columns else none

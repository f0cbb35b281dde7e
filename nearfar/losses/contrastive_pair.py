"""Contrastive pair losses: positive pairs lie close together, negative pairs at least a margin apart."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_masks, check_rows
from nearfar.losses.dense_rows import check_distances, map_dense_rows
from nearfar.scores import Number, Scores, as_score, euclidean
from nearfar.scores.constructors import ScoreLike


def build_pair_scores(
    a: Float[Tensor, "n ..."], b: Float[Tensor, "n ..."], is_positive: Bool[Tensor, " n"], score: ScoreLike = euclidean
) -> Scores:
    """Build a table of single pairs from two batches of vectors.

    Row i has one candidate, `b[i]`. It is positive where `is_positive` is true and negative elsewhere.
    """
    check_rows(a=a, b=b)
    check_masks((len(a),), is_positive=is_positive)
    score = as_score(score)
    own = score.score_pairs(score.prepare_vectors(a), score.prepare_vectors(b))[:, None]
    nothing = own.new_empty(len(own), 0)
    return Scores(nothing, nothing[:0], private_scores=own, private_signs=torch.where(is_positive, 1, -1)[:, None])


def contrastive_pair(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the contrastive loss of distances with a squared hinge.

    With \(D = -s\),

    \[ \ell_i = \frac{1}{|P_i| + |N_i|} \Big( \sum_{p \in P_i} D_{ip}^2 + \sum_{j \in N_i} \max(0,\, m - D_{ij})^2 \Big) \]

    Shapes: `(n,)`; take the mean. `contrastive_pair(build_pair_scores(a, b, is_positive))` is the loss of
    each pair. `contrastive_pair(Scores.from_labels(z, labels, score=euclidean))` is the mean over each row's
    candidates. A row without candidates has loss 0.

    Requirements: scores are minus distances. Two negatives that coincide have no direction to separate in, so
    they get no gradient.

    Relations: the push becomes weaker towards the margin. The push of `contrastive_pair_squared` ends there
    at full strength. Each pair has its own loss, while `triplet` compares two pairs. The loss is often
    credited to Chopra et al. 2005, whose loss had an exponential.

    Reference: Hadsell, Chopra, LeCun, Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
    """
    check_distances(S, "contrastive_pair")
    return _mean_over_candidates(S, torch.square, lambda s: F.relu(margin + s).square())


def contrastive_pair_squared(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the contrastive loss of squared distances.

    The square is inside the hinge. With \(D^2 = -s\),

    \[ \ell_i = \frac{1}{|P_i| + |N_i|} \Big( \sum_{p \in P_i} D_{ip}^2 + \sum_{j \in N_i} \max(0,\, m - D_{ij}^2) \Big) \]

    Shapes and requirements: as `contrastive_pair`, on a table of minus *squared* distances:
    `score=squared_euclidean`.

    Relations: this is not `contrastive_pair` in another notation. The two differ in value and gradient, and
    the margin here is a squared distance. With one positive and one negative in each row the loss is half of
    C-SWM's `energy_hinge`.

    Reference: Le-Khac, Healy, Smeaton, Contrastive Representation Learning: A Framework and Review, IEEE
    Access 2020, eq. 2.
    """
    check_distances(S, "contrastive_pair_squared")
    return _mean_over_candidates(S, torch.neg, lambda s: F.relu(margin + s))


def _mean_over_candidates(S: Scores, pull, push) -> Tensor:
    def cost(scores: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        total = torch.where(pos, pull(scores), torch.where(neg, push(scores), 0.0)).sum(1)
        return (total / (pos | neg).sum(1).clamp_min(1),)

    return map_dense_rows(S, cost)[0]

"""Hinge losses: rankings of positives above negatives by a margin, and energies bounded by a margin."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_float_tensors, check_rows
from nearfar.losses.batch_triplet import sum_triplet_hinges
from nearfar.scores import Number, Scores


def ranking_hinge(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the mean hinge over each row's pairs of positive and negative.

    \[ \ell_i = \frac{1}{|P_i| |N_i|} \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + s_{ij} - s_{ip}) \]

    Shapes: a table of n rows gives `(n,)`; take the mean. Rows without positives or negatives have loss 0.

    Relations: on `Scores.from_lists` with scores of a learned function this is Collobert and Weston's ranking
    of word windows. On `Scores.from_pairs(q, k, score=bilinear(W))` it is OASIS's hinge. `nt_margin` and
    `translation_hinge` below use it. `batch_all` takes one mean over the whole table instead of one for each
    row.

    References: Collobert, Weston, ICML 2008; Chechik et al., Large Scale Online Learning of Image Similarity
    Through Ranking, 2009.
    """
    total, _, every = sum_triplet_hinges(S, margin)
    return total / every.clamp_min(1)


def nt_margin(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], margin: Number = 0.4) -> Float[Tensor, ""]:
    r"""Compute SimCLR's margin loss over all views of a batch.

    It is the mean over all views' negatives of \(\max(0,\; u^\top v^- - u^\top v^+ + m)\), with normalized
    vectors. Published comparisons of losses print minus this value, an objective to be *maximized*.

    Relations: `ranking_hinge` on the table of `nt_xent`. The better variant in the paper is semi-hard:
    `semi_hard_triplet(Scores.from_views(z0, z1), margin)`.

    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020,
    table 2.
    """
    check_rows(z0=z0, z1=z1)
    return ranking_hinge(Scores.from_views(z0, z1), margin).mean()


def translation_hinge(pos_distances: Float[Tensor, " n"], neg_distances: Float[Tensor, "n k"], margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the hinge between distances of true and corrupted triples.

    It is \(\frac1k \sum_j [\gamma + d(h + r, t) - d(h'_j + r, t'_j)]_+\), with \(\gamma\) the margin.

    Shapes: distances (not scores) of n true triples and of k corruptions of each give `(n,)`.

    Requirements: entities of bounded length. Otherwise growing vectors meet the margin. `corrupt_triples`
    replaces heads and tails equally often.

    Relations: `ranking_hinge` on minus distances.

    Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013.
    """
    check_rows(1, pos_distances=pos_distances, neg_distances=neg_distances)
    check_float_tensors(neg_distances=neg_distances)
    return ranking_hinge(Scores.from_lists(-pos_distances[:, None], -neg_distances), margin)


def energy_hinge(pos_energies: Float[Tensor, " n"], neg_energies: Float[Tensor, "n k"], margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Compute the energy of true transitions plus a hinge of false ones.

    The loss lowers the energy of observed transitions and raises the energy of others up to \(\gamma\), the
    margin:

    \[ \ell_i = H_i + \frac1k \sum_j \max(0,\; \gamma - \tilde H_{ij}), \qquad
       H = \lVert z_t + T(z_t, a_t) - z_{t+1} \rVert^2, \quad \tilde H = \lVert \tilde z_t - z_{t+1} \rVert^2 \]

    Shapes: energies of n transitions and of k random states each give `(n,)`. The second term is 0 for k = 0.

    Relations: `contrastive_pair_squared` with the two sides averaged separately. Unlike in a ranking loss,
    the positive term is always active, and the two terms do not depend on each other.

    Reference: Kipf, van der Pol, Welling, Contrastive Learning of Structured World Models, ICLR 2020.
    """
    check_rows(1, pos_energies=pos_energies, neg_energies=neg_energies)
    check_float_tensors(neg_energies=neg_energies)
    return pos_energies + F.relu(margin - neg_energies).sum(1) / max(1, neg_energies.shape[1])


def lmnn(S: Scores, margin: Number = 1.0, push_weight: Number = 0.5) -> Float[Tensor, " n"]:
    r"""Compute the large margin nearest neighbor (LMNN) loss of each row.

    The loss pulls target neighbors closer and pushes impostors out of the neighborhood:

    \[ \ell_i = (1 - \mu) \sum_{p \in P_i} D_{ip}^2 + \mu \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + D_{ip}^2 - D_{ij}^2) \]

    Args:
        S: Table of minus squared distances whose positives are the target neighbors.
        margin: Margin of the hinge, m.
        push_weight: Weight of the push, \(\mu\). The pull has weight \(1 - \mu\).

    Shapes: a table of n rows gives `(n,)`.

    Requirements: \(D^2 = -s\): `score=squared_euclidean`, of inputs under a linear map. The positives are the
    target neighbors, chosen once in the input space:

        S = Scores.from_labels(x @ L, labels, score=squared_euclidean)
        inputs = Scores.from_labels(x, labels, score=squared_euclidean)
        lmnn(select_positives(S, mine_nearest_positives(inputs, num_positives=3)))

    Relations: the first triplet hinge. `batch_all` has no pull.

    Reference: Weinberger, Blitzer, Saul, Distance Metric Learning for Large Margin Nearest Neighbor
    Classification, NIPS 2005.
    """
    total, _, _ = sum_triplet_hinges(S, margin)
    return -(1 - push_weight) * S.pos_sum + push_weight * total

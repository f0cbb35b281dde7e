"""Hinges: rankings of a positive above negatives, by a margin; and energies that are pushed up to one."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_float_tensors, check_rows
from nearfar.losses.batch_triplet import sum_triplet_hinges
from nearfar.scores import Number, Scores


def ranking_hinge(S: Scores, margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""Every positive above every negative of its row, by a margin:

    \[ \ell_i = \frac{1}{|P_i| |N_i|} \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + s_{ij} - s_{ip}) \]

    Shapes: a table of n rows gives `(n,)`, 0 for rows without positives or negatives; take the mean.

    Relations: on `listed` scores of a learned function Collobert and Weston's ranking of word windows; on
    `pairs(q, k, score=bilinear(W))` OASIS's hinge; `nt_margin` and `translation_hinge` below. `batch_all` takes one mean over
    the whole table instead of one a row.

    References: Collobert, Weston, ICML 2008; Chechik et al., Large Scale Online Learning of Image Similarity Through Ranking, 2009.
    """
    total, _, every = sum_triplet_hinges(S, margin)
    return total / every.clamp_min(1)


def nt_margin(z0: Float[Tensor, "n d"], z1: Float[Tensor, "n d"], margin: Number = 0.4) -> Float[Tensor, ""]:
    r"""SimCLR's margin alternative: the mean over all views' negatives of \(\max(0,\; u^\top v^- - u^\top v^+ + m)\), vectors normalised.

    What is printed in comparisons of losses is minus this, an objective to be *maximised*.

    Relations: `ranking` on the table of `nt_xent`. Its better variant in the paper, semi-hard, is `semi_hard(views(z0, z1), margin)`.

    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020, table 2.
    """
    check_rows(z0=z0, z1=z1)
    return ranking_hinge(Scores.from_views(z0, z1), margin).mean()


def translation_hinge(pos_distances: Float[Tensor, " n"], neg_distances: Float[Tensor, "n k"], margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""True triples at a smaller distance than corrupted ones, \(\frac1k \sum_j [\gamma + d(h + r, t) - d(h'_j + r, t'_j)]_+\).

    Shapes: distances (not scores) of n true triples and of k corruptions of each give `(n,)`.

    Requirements: entities of bounded length, or the margin is met by growing. `corrupt` replaces heads and tails alike.

    Relations: `ranking` on minus distances.

    Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013.
    """
    check_rows(1, pos_distances=pos_distances, neg_distances=neg_distances)
    check_float_tensors(neg_distances=neg_distances)
    return ranking_hinge(Scores.from_lists(-pos_distances[:, None], -neg_distances), margin)


def energy_hinge(pos_energies: Float[Tensor, " n"], neg_energies: Float[Tensor, "n k"], margin: Number = 1.0) -> Float[Tensor, " n"]:
    r"""The energy of what happened goes down, that of what did not up to \(\gamma\):

    \[ \ell_i = H_i + \frac1k \sum_j \max(0,\; \gamma - \tilde H_{ij}), \qquad
       H = \lVert z_t + T(z_t, a_t) - z_{t+1} \rVert^2, \quad \tilde H = \lVert \tilde z_t - z_{t+1} \rVert^2 \]

    Shapes: energies of n transitions and of k random states each give `(n,)`; the mean over none is 0.

    Relations: `pair_of_squares` with the two sides averaged separately. Unlike in a ranking, the positive term never
    rests, and the two terms do not wait for each other.

    Reference: Kipf, van der Pol, Welling, Contrastive Learning of Structured World Models, ICLR 2020.
    """
    check_rows(1, pos_energies=pos_energies, neg_energies=neg_energies)
    check_float_tensors(neg_energies=neg_energies)
    return pos_energies + F.relu(margin - neg_energies).sum(1) / max(1, neg_energies.shape[1])


def lmnn(S: Scores, margin: Number = 1.0, push_weight: Number = 0.5) -> Float[Tensor, " n"]:
    r"""Large margin nearest neighbours: target neighbours are pulled near, impostors pushed out of their neighbourhood,

    \[ \ell_i = (1 - \mu) \sum_{p \in P_i} D_{ip}^2 + \mu \sum_{p \in P_i} \sum_{j \in N_i} \max(0,\; m + D_{ip}^2 - D_{ij}^2) \]

    Shapes: a table of n rows gives `(n,)`.

    Requirements: \(D^2 = -s\): `score=squared_euclidean`, of inputs under a linear map. The positives are the target
    neighbours, chosen once in the space of the inputs:

        S = labelled(x @ L, y, score=squared_euclidean)
        lmnn(only_positives(S, nearest_positives(labelled(x, y, score=squared_euclidean), k=3)))

    Relations: the first triplet hinge; `batch_all` has no pull.

    Reference: Weinberger, Blitzer, Saul, Distance Metric Learning for Large Margin Nearest Neighbor Classification, NIPS 2005.
    """
    total, _, _ = sum_triplet_hinges(S, margin)
    return -(1 - push_weight) * S.pos_sum + push_weight * total

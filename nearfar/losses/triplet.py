"""Triplet losses of given triplets: the positive is nearer than the negative by a margin."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_rows
from nearfar.scores import Number, as_score, euclidean, squared_euclidean
from nearfar.scores.constructors import ScoreLike


def triplet(
    anchor: Float[Tensor, "n ..."],
    positive: Float[Tensor, "n ..."],
    negative: Float[Tensor, "n ..."],
    margin: Number = 0.2,
    score: ScoreLike = squared_euclidean,
) -> Float[Tensor, " n"]:
    r"""Compute the hinge between positive and negative distances of each triplet.

    With \(D = -s\),

    \[ \ell_i = \max\big(0,\; D(a_i, p_i) - D(a_i, n_i) + m\big) \]

    | score | D | known from |
    |---|---|---|
    | `squared_euclidean` | \(\lVert a - b \rVert^2\) | FaceNet, deep ranking |
    | `euclidean` | \(\lVert a - b \rVert\) | Sentence-BERT, Hermans et al. |
    | `cosine` | \(1 - \cos(a, b)\) | Wang and Gupta |
    | `bilinear(W)` | \(-a^\top W b\) | OASIS, with margin 1 |

    Shapes: n triplets give `(n,)`; take the mean.

    Requirements: the margin has the unit of the distance. 0.2 for squared distances is not 0.2 for distances.

    Relations: `batch_all` averages over all triplets of a batch, `batch_hard` takes the hardest ones. With a
    softmax instead of the hinge the loss is `n_pair` for two classes. The idea is older than its best-known
    use: LMNN (2006), Collobert and Weston (2008), OASIS (2009).

    References: Schroff, Kalenichenko, Philbin, FaceNet, CVPR 2015; Weinberger, Blitzer, Saul, NIPS 2005.
    """
    return F.relu(_gap(anchor, positive, negative, score) + margin)


def triplet_ratio(
    anchor: Float[Tensor, "n ..."], positive: Float[Tensor, "n ..."], negative: Float[Tensor, "n ..."], score: ScoreLike = euclidean
) -> Float[Tensor, " n"]:
    r"""Compute the squared softmax share of the positive distance of each triplet.

    \[ \ell_i = \left( \frac{e^{D(a_i, p_i)}}{e^{D(a_i, p_i)} + e^{D(a_i, n_i)}} \right)^2 \]

    Shapes: n triplets give `(n,)`, between 0 and 1. There is no margin, so every triplet always has a
    gradient.

    Relations: `triplet` with the square of a sigmoid instead of the hinge.

    Reference: Hoffer, Ailon, Deep Metric Learning Using Triplet Network, 2015.
    """
    return _gap(anchor, positive, negative, score).sigmoid().square()


def _gap(anchor: Tensor, positive: Tensor, negative: Tensor, score: ScoreLike) -> Tensor:
    """Compute D(a, p) - D(a, n), which is below zero where the positive is nearer."""
    check_rows(anchor=anchor, positive=positive, negative=negative)
    score = as_score(score)
    a, p, n = (score.prepare_vectors(x) for x in (anchor, positive, negative))
    return score.score_pairs(a, n) - score.score_pairs(a, p)

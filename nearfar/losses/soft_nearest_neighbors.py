"""Soft nearest neighbor loss: a random near neighbor has the same class."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from nearfar.losses.info_nce import mil_nce
from nearfar.scores import Scalar, Scores, squared_euclidean


def soft_nearest_neighbors(z: Float[Tensor, "n d"], labels: Int[Tensor, " n"], temperature: Scalar = 1.0) -> Float[Tensor, ""]:
    r"""Compute the log-loss of drawing a neighbor of the same class.

    A neighbor is drawn with probability \(\propto \exp(-\lVert z_i - z_j \rVert^2 / \tau)\):

    \[ \mathcal L = -\frac1n \sum_i \log \frac{\sum_{j \ne i,\; y_j = y_i} e^{-\lVert z_i - z_j \rVert^2 / \tau}}
                                              {\sum_{k \ne i} e^{-\lVert z_i - z_k \rVert^2 / \tau}} \]

    A *distance* enters the exponential with a minus sign. A similarity there would push classes together.

    Requirements: rows alone in their class (or with label -1) count as 0 in the mean. To leave them out, as
    pytorch-metric-learning's `NCALoss` does, use
    `S = Scores.from_labels(z, labels, score=squared_euclidean) / temperature` and
    `mean_over_rows_with_positives(mil_nce(S), S)`.

    Relations: `mil_nce` on minus squared distances. It is neighborhood component analysis with a temperature.
    `mil_nce(Scores.from_labels(z, labels) / temperature)` is the same loss on cosines.

    References: Salakhutdinov, Hinton, AISTATS 2007; Frosst, Papernot, Hinton, ICML 2019.
    """
    return mil_nce(Scores.from_labels(z, labels, score=squared_euclidean) / temperature).mean()

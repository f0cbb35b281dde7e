"""The soft nearest neighbour loss: a random near neighbour should be of one's class."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from nearfar.losses.info_nce import mil_nce
from nearfar.scores import Scalar, Scores, squared_euclidean


def soft_nearest_neighbors(z: Float[Tensor, "n d"], labels: Int[Tensor, " n"], temperature: Scalar = 1.0) -> Float[Tensor, ""]:
    r"""A neighbour is drawn with probability \(\propto \exp(-\lVert z_i - z_j \rVert^2 / \tau)\); its class should be right:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{\sum_{j \ne i,\; y_j = y_i} e^{-\lVert z_i - z_j \rVert^2 / \tau}}
                                              {\sum_{k \ne i} e^{-\lVert z_i - z_k \rVert^2 / \tau}} \]

    What enters the exponential with a minus is a *distance*; a similarity there would push classes together.

    Requirements: rows alone in their class (or with label -1) count as 0 in the mean. To leave them out, as
    pytorch-metric-learning's `NCALoss` does, take `S = labelled(z, y, score=squared_euclidean) / tau` and
    `mean_over_rows_with_positives(info_nce_in(S), S)`.

    Relations: `info_nce_in` on minus squared distances; neighbourhood component analysis with a temperature.
    `info_nce_in(labelled(z, y) / tau)` is the same on cosines.

    References: Salakhutdinov, Hinton, AISTATS 2007; Frosst, Papernot, Hinton, ICML 2019.
    """
    return mil_nce(Scores.from_labels(z, labels, score=squared_euclidean) / temperature).mean()

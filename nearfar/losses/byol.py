"""BYOL's regression: predict the direction of the target's view."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows_of_same_shape
from nearfar.scores import cosine


def byol(prediction: Float[Tensor, "n d"], target: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""\[ \ell_i = \lVert \bar p_i - \operatorname{sg}(\bar t_i) \rVert^2 = 2 - 2 \cos(p_i, \operatorname{sg}(t_i)) \]

    The target gets no gradient. A zero vector has cosine 0.

    Shapes: `(n, d)` twice gives `(n,)`. Symmetrise by adding the loss with the views exchanged.

    Relations: SimSiam's negative cosine is this, halved, less 1: same minimum, half the gradient. With a gradient on
    both sides it is `alignment(alpha=2)` and collapses.

    Reference: Grill et al., Bootstrap Your Own Latent, NeurIPS 2020.
    """
    check_rows_of_same_shape(prediction=prediction, target=target)
    return 2 - 2 * cosine.score_pairs(cosine.prepare_vectors(prediction), cosine.prepare_vectors(target.detach()))

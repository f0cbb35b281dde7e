"""BYOL's regression loss: the prediction matches the direction of the target."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows_of_same_shape
from nearfar.scores import cosine


def byol(prediction: Float[Tensor, "n d"], target: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Compute the squared distance between normalized predictions and targets.

    \[ \ell_i = \lVert \bar p_i - \operatorname{sg}(\bar t_i) \rVert^2 = 2 - 2 \cos(p_i, \operatorname{sg}(t_i)) \]

    The target gets no gradient. A zero vector has cosine 0.

    Shapes: two tensors `(n, d)` give `(n,)`. For the symmetric loss, add the same loss with the views
    exchanged.

    Relations: SimSiam's negative cosine is half of this loss, minus 1. It has the same minimum and half the
    gradient. With a gradient on both sides the loss is `alignment(exponent=2)` and collapses.

    Reference: Grill et al., Bootstrap Your Own Latent, NeurIPS 2020.
    """
    check_rows_of_same_shape(prediction=prediction, target=target)
    return 2 - 2 * cosine.score_pairs(cosine.prepare_vectors(prediction), cosine.prepare_vectors(target.detach()))

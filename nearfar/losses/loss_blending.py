"""One loss early, another late: constraints to begin with, hard negatives to end with."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_shapes
from nearfar.core.errors import UsageError
from nearfar.scores import Number


def blend_losses(
    early: Float[Tensor, "*n"], late: Float[Tensor, "*n"], progress: Number, start: Number = 0.4, stop: Number = 0.6
) -> Float[Tensor, "*n"]:
    r"""\((1 - w)\,\mathcal L_{\text{early}} + w\,\mathcal L_{\text{late}}\), with w rising from 0 at `start` to 1 at `stop`.

    `progress` is the share of the training that is over, in [0, 1], which a recipe keeps in its net.

    Relations: an open question of the survey: `byol` or `w_mse` while the embedding is shapeless, `hard_negative` once
    negatives mean something.
    """
    if not 0 <= start < stop <= 1:
        raise UsageError(f"blend_losses: needs 0 <= start < stop <= 1, got {start} and {stop}")
    check_equal_shapes(early=early, late=late)
    w = min(max((progress - start) / (stop - start), 0.0), 1.0)
    return (1 - w) * early + w * late

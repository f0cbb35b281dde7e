"""Linear transition from one loss early in training to another later."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_equal_shapes
from nearfar.core.errors import UsageError
from nearfar.scores import Number


def blend_losses(
    early: Float[Tensor, "*n"], late: Float[Tensor, "*n"], progress: Number, start: Number = 0.4, stop: Number = 0.6
) -> Float[Tensor, "*n"]:
    r"""Interpolate from an early loss to a late loss over the training.

    The result is \((1 - w)\,\mathcal L_{\text{early}} + w\,\mathcal L_{\text{late}}\). The weight w rises
    from 0 at `start` to 1 at `stop`.

    Args:
        early: Loss at the start of training.
        late: Loss at the end of training.
        progress: Completed share of the training, in [0, 1]. A recipe stores it in its network.
        start: Progress at which the transition begins.
        stop: Progress at which the transition ends.

    Relations: an open question of the survey. One option is `byol` or `w_mse` while the embedding has no
    structure yet, then `hard_negative` once negatives are informative.
    """
    if not 0 <= start < stop <= 1:
        raise UsageError(f"blend_losses: needs 0 <= start < stop <= 1, got {start} and {stop}")
    check_equal_shapes(early=early, late=late)
    w = min(max((progress - start) / (stop - start), 0.0), 1.0)
    return (1 - w) * early + w * late

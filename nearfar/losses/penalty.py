"""Two penalties that are often taken for each other: on the length of a vector, and on how far it moved."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows, check_rows_of_same_shape


def norm_penalty(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""\(\lVert z_i \rVert^2\): keeps dot products from growing by growing the vectors.

    Relations: goes with `n_pair` and other losses on plain dot products; on cosines it does nothing useful.

    Reference: Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016.
    """
    check_rows(z=z)
    return z.square().sum(1)


def proximal_penalty(current: Float[Tensor, "n d"], previous: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""\(\lVert v_i^{(t)} - v_i^{(t-1)} \rVert^2\): keeps a vector near the one remembered of the same sample.

    Shapes: the vectors of this step, and the bank's rows of the same samples; those get no gradient.

    Relations: the second term of `instance_nce`'s paper, where each instance is a class of one, seen once an epoch.
    It is a difference of two iterates, not a penalty on norms.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    check_rows_of_same_shape(current=current, previous=previous)
    return (current - previous.detach()).square().sum(1)

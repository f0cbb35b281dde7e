"""Two penalties that are often confused: on the length of a vector, and on its change."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows, check_rows_of_same_shape


def norm_penalty(z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Compute the squared length of each vector.

    The penalty \(\lVert z_i \rVert^2\) keeps dot products from growing with the lengths of the vectors.

    Relations: use it with `n_pair` and other losses on plain dot products. On cosines it has no useful
    effect.

    Reference: Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016.
    """
    check_rows(z=z)
    return z.square().sum(1)


def proximal_penalty(current: Float[Tensor, "n d"], previous: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Compute the squared distance of each vector to its stored version.

    The penalty \(\lVert v_i^{(t)} - v_i^{(t-1)} \rVert^2\) keeps a vector near the stored vector of the same
    sample.

    Args:
        current: Vectors of this step.
        previous: The memory bank's rows of the same samples. They get no gradient.

    Relations: the second term of the paper of `instance_nce`, where each sample is its own class, seen once
    in each epoch. It is a difference of two iterates, not a penalty on norms.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    check_rows_of_same_shape(current=current, previous=previous)
    return (current - previous.detach()).square().sum(1)

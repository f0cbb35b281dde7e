"""Contrastive representation distillation (CRD): student vectors match the teacher's vectors."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.core.errors import UsageError
from nearfar.losses.nce import binary_nce
from nearfar.scores import Scalar, Scores


def crd(
    student: Float[Tensor, "n d"],
    teacher: Float[Tensor, "n d"],
    negatives: Float[Tensor, "m d"],
    num_samples: int,
    temperature: Scalar = 0.07,
) -> Float[Tensor, " n"]:
    r"""Compute the CRD loss of each student vector.

    The loss is a binary classification: is a teacher vector from the same sample, or is it one of m vectors
    of other samples?

    \[ \ell_i = -\log h(t_i, s_i) - \sum_{j=1}^m \log(1 - h(t_j, s_i)), \qquad
       h(t, s) = \frac{e^{\cos(t, s) / \tau}}{e^{\cos(t, s) / \tau} + m / M} \]

    Here M is `num_samples`.

    Args:
        student: Vectors of the student.
        teacher: Vectors of the teacher for the same samples.
        negatives: m stored teacher vectors of other samples.
        num_samples: Number of samples in the dataset, M.
        temperature: Temperature of the cosines.

    Requirements: both sides are already projected to the same width. The two sides may be exchanged,
    `crd(teacher, student, …)`. The authors add both losses.

    Relations: `binary_nce` with noise of density 1/M. `instance_nce` with Z = 1 and the memory of another
    network.

    Reference: Tian, Krishnan, Isola, Contrastive Representation Distillation, ICLR 2020.
    """
    check_rows(student=student, teacher=teacher)
    check_rows(negatives=negatives)
    if num_samples < 1:
        raise UsageError(f"crd: num_samples must be at least 1, got {num_samples}")
    return binary_nce(
        Scores.from_matched(student, teacher, negatives=negatives) / temperature + math.log(num_samples), noise_ratio=len(negatives)
    )

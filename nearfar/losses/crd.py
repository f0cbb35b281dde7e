"""Contrastive representation distillation: the student's vector of a sample finds the teacher's."""

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
    r"""Is it the teacher's vector of the same sample (T, S) or of another, of which there are m for each?

    \[ \ell_i = -\log h(t_i, s_i) - \sum_{j=1}^m \log(1 - h(t_j, s_i)), \qquad
       h(t, s) = \frac{e^{\cos(t, s) / \tau}}{e^{\cos(t, s) / \tau} + m / M} \]

    with M = `total` samples in the data and `against` m remembered vectors of the teacher.

    Requirements: both sides already projected to one width. The teacher's side may be swapped for the
    student's, `crd(teacher, student, …)`; the authors add the two.

    Relations: `binary_nce` whose noise has density 1/M; `instance_nce` with Z = 1 and another network's memory.

    Reference: Tian, Krishnan, Isola, Contrastive Representation Distillation, ICLR 2020.
    """
    check_rows(student=student, teacher=teacher)
    check_rows(negatives=negatives)
    if num_samples < 1:
        raise UsageError(f"crd: num_samples must be at least 1, got {num_samples}")
    return binary_nce(
        Scores.from_matched(student, teacher, negatives=negatives) / temperature + math.log(num_samples), noise_ratio=len(negatives)
    )

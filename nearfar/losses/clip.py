"""CLIP's loss: InfoNCE in both directions of a table of pairs."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_positive, check_rows
from nearfar.scores import Scalar, Score, Scores, cosine
from nearfar.scores.half import can_use_kernels, half_clip
from nearfar.scores.shortcuts import fast_symmetric_cross_entropy


def clip(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], scale: Scalar, score: Score = cosine) -> Float[Tensor, ""]:
    r"""Compute InfoNCE from `a` to `b` and from `b` to `a`.

    \[ \mathcal L = -\frac{1}{2n} \sum_i \left[ \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}}
                                                + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}} \right], \qquad
       s_{ij} = \text{scale} \cdot \cos(a_i, b_j) \]

    Args:
        a: Embeddings of one modality.
        b: Embeddings of the other modality. Row i is the positive of row i of `a`.
        scale: 1 / temperature, usually the exponential of a learned number.
        score: Score of a pair. Use `unit_dot` for vectors that are already normalized.

    Relations: the mean of `info_nce(S)` and `info_nce(S.T)`, from one table. `sigmoid` classifies each pair
    on its own.

    Reference: Radford et al., Learning Transferable Visual Models From Natural Language Supervision,
    ICML 2021.
    """
    check_rows(a=a, b=b)
    check_positive(scale=scale)
    if score.is_dot and can_use_kernels(a, b):
        return half_clip(score.prepare_vectors(a), score.prepare_vectors(b), scale, score.lowest)
    S = Scores.from_pairs(a, b, score=score) * scale
    known = fast_symmetric_cross_entropy(S)
    if known is not None:
        return known
    # Each row and each column has one positive.
    (rows, pos), (columns, _) = S.row_and_column_stats(Scores.all_lse, Scores.pos_sum)
    return ((rows + columns) / 2 - pos).mean()

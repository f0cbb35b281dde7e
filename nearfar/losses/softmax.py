"""Softmax over classes: with weights, with remembered vectors in their place, and on logits."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.core.argument_checks import check_float_tensors, check_rows
from nearfar.core.errors import UsageError
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Number, Scalar, Score, Scores, cosine, dot
from nearfar.scores.candidate_roles import as_ids


def build_class_scores(
    z: Float[Tensor, "n d"], class_vectors: Float[Tensor, "c d"], labels: Int[Tensor, " n"], score: Score = dot
) -> Scores:
    """Rows against one vector of each class; the class `y[i]` is the positive, -1 (unknown) is no class. A bias: a further coordinate."""
    check_rows(z=z)
    check_rows(class_vectors=class_vectors)
    ids = torch.arange(len(class_vectors), device=class_vectors.device)
    return Scores(
        score.prepare_vectors(z),
        score.prepare_vectors(class_vectors),
        as_ids(labels, len(z), "build_class_scores: labels"),
        ids,
        score=score,
    )


def parametric_softmax(z: Float[Tensor, "n d"], class_vectors: Float[Tensor, "c d"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""\[ \ell_i = -\log p(y_i \mid z_i), \qquad p(c \mid z) = \frac{e^{z^\top w_c}}{\sum_{j} e^{z^\top w_j}} \]

    The sum runs over all classes j, with each class's own weights.

    Shapes: `(n,)`, 0 for unknown labels (-1).

    Relations: `cross_entropy(z @ weights.T, y)`, row by row, without ever holding the logits: for very many classes.
    """
    return info_nce(build_class_scores(z, class_vectors, labels))


def instance_softmax(
    z: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], ids: Int[Tensor, " n"], temperature: Scalar = 0.07
) -> Float[Tensor, " n"]:
    r"""The non-parametric softmax: remembered vectors take the place of weights, and instances that of classes,

    \[ \ell_i = -\log \frac{e^{\cos(z_i, v_i) / \tau}}{\sum_{j=1}^m e^{\cos(z_i, v_j) / \tau}} \]

    exactly, over the whole bank.

    Relations: `info_nce(classes(z, bank, ids, score=cosine) / tau)`. `instance_nce` approximates it with some of the bank.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    check_rows(z=z)
    check_rows(bank=bank)
    return info_nce(build_class_scores(z, bank, ids, score=cosine) / temperature)


def cross_entropy(
    logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"], label_smoothing: Number = 0.0, sample_weight: Float[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    r"""The supervised twin of contrastive losses: the weighted mean, over rows whose label is known, of

    \[ -\sum_c \Big[(1 - \epsilon)\, \mathbb 1_{c = y_i} + \frac{\epsilon}{C}\Big] \log \operatorname{softmax}(l_i)_c \]

    Requirements: labels in 0 … C - 1, or -1 for unknown. 0 if none is known.

    Reference, of the smoothing \(\epsilon\): Szegedy et al., Rethinking the Inception Architecture, CVPR 2016.
    """
    if not 0 <= label_smoothing <= 1:
        raise UsageError(f"cross_entropy: label_smoothing must lie between 0 and 1, got {label_smoothing}")
    check_float_tensors(logits=logits)
    labels = as_ids(labels, len(logits), "cross_entropy: labels")
    try:
        row = F.cross_entropy(logits, labels, reduction="none", ignore_index=-1, label_smoothing=label_smoothing)
    except IndexError as e:
        raise UsageError(f"cross_entropy: labels must lie in 0 … {logits.shape[1] - 1}, or be -1 for unknown: {e}") from e
    known = (labels != -1).to(row) if sample_weight is None else (labels != -1) * sample_weight
    return (row * known).sum() / known.sum().clamp_min(torch.finfo(row.dtype).tiny)

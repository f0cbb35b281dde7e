"""Softmax losses over classes: with class weights, with stored vectors, and on logits."""

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
    """Build a table of rows against one vector for each class.

    The class `labels[i]` is the positive of row i. The label -1 (unknown) matches no class. For a bias, add
    one more coordinate to the vectors.
    """
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
    r"""Compute the cross-entropy of a linear classifier without storing the logits.

    \[ \ell_i = -\log p(y_i \mid z_i), \qquad p(c \mid z) = \frac{e^{z^\top w_c}}{\sum_{j} e^{z^\top w_j}} \]

    The sum runs over all classes j, each with its own weights.

    Shapes: `(n,)`, 0 for unknown labels (-1).

    Relations: `cross_entropy(z @ class_vectors.T, labels)`, row by row. The logits are never held in memory,
    so very many classes are possible.
    """
    return info_nce(build_class_scores(z, class_vectors, labels))


def instance_softmax(
    z: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], ids: Int[Tensor, " n"], temperature: Scalar = 0.07
) -> Float[Tensor, " n"]:
    r"""Compute the non-parametric softmax loss over a memory bank.

    Stored vectors replace the class weights, and samples replace the classes:

    \[ \ell_i = -\log \frac{e^{\cos(z_i, v_i) / \tau}}{\sum_{j=1}^m e^{\cos(z_i, v_j) / \tau}} \]

    The loss is exact, over the whole bank.

    Args:
        z: Embeddings of the rows.
        bank: Stored vectors of all samples.
        ids: Row of `bank` that holds each row's own stored vector.
        temperature: Temperature of the cosines.

    Relations: `info_nce(build_class_scores(z, bank, ids, score=cosine) / temperature)`. `instance_nce`
    approximates the loss with a part of the bank.

    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018.
    """
    check_rows(z=z)
    check_rows(bank=bank)
    return info_nce(build_class_scores(z, bank, ids, score=cosine) / temperature)


def cross_entropy(
    logits: Float[Tensor, "n c"], labels: Int[Tensor, " n"], label_smoothing: Number = 0.0, sample_weight: Float[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    r"""Compute the weighted mean cross-entropy over rows with known labels.

    This is the supervised counterpart of contrastive losses. Each row's loss is

    \[ -\sum_c \Big[(1 - \epsilon)\, \mathbb 1_{c = y_i} + \frac{\epsilon}{C}\Big] \log \operatorname{softmax}(l_i)_c \]

    Args:
        logits: Logits of C classes.
        labels: Labels in 0 … C - 1, or -1 for unknown.
        label_smoothing: Smoothing \(\epsilon\), between 0 and 1.
        sample_weight: Weight of each row in the mean.

    Requirements: the loss is 0 if no label is known.

    Reference, of the smoothing: Szegedy et al., Rethinking the Inception Architecture, CVPR 2016.
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

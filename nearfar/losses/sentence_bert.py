"""Sentence-BERT's classification and regression losses on pairs of sentences."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_equal_lengths, check_rows_of_same_shape
from nearfar.losses.softmax import cross_entropy
from nearfar.scores import cosine


def build_sbert_features(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
    r"""Build the classifier's input features of each pair of sentences.

    The features are \([u; v; |u - v|]\), of width 3 d.
    """
    check_rows_of_same_shape(u=u, v=v)
    return torch.cat([u, v, (u - v).abs()], 1)


def sbert_softmax(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], classifier_weight: Float[Tensor, "c e"], labels: Int[Tensor, " n"]
) -> Float[Tensor, ""]:
    r"""Compute the cross-entropy of a linear classifier on sentence pairs.

    \[ \mathcal L = -\frac1n \sum_i \log \operatorname{softmax}(W [u_i; v_i; |u_i - v_i|])_{y_i} \]

    Shapes: W is `(c, 3 d)`, for c relations (entailment, neutral, contradiction), without a bias. The label
    -1 is unknown.

    Relations: similar vectors are a by-product. Training optimizes the classifier, and the cosine is used
    afterwards.

    Reference: Reimers, Gurevych, Sentence-BERT, EMNLP 2019. Its triplet objective is a margin loss.
    """
    return cross_entropy(build_sbert_features(u, v) @ classifier_weight.T, labels)


def sbert_regression(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], gold_similarities: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Compute the squared error of the cosine against gold similarities.

    It is \(\ell_i = (\cos(u_i, v_i) - y_i)^2\), with gold similarities scaled to [0, 1] (or [-1, 1]).

    Reference: Reimers, Gurevych, Sentence-BERT, EMNLP 2019.
    """
    check_rows_of_same_shape(u=u, v=v)
    check_equal_lengths(u=u, gold_similarities=gold_similarities)
    return (cosine.score_pairs(cosine.prepare_vectors(u), cosine.prepare_vectors(v)) - gold_similarities).square()

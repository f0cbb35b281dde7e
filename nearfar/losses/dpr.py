"""Dense passage retrieval (DPR): InfoNCE of questions over in-batch and mined passages."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores, dot


def dpr(
    question: Float[Tensor, "n d"], passage: Float[Tensor, "n d"], mined_passages: Float[Tensor, "m d"] | None = None
) -> Float[Tensor, ""]:
    r"""Compute InfoNCE of questions and passages with dot products.

    Questions and passages have two encoders. There is no temperature:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{q_i^\top p_i}}{\sum_{j} e^{q_i^\top p_j} + \sum_{l} e^{q_i^\top p_l^-}} \]

    Args:
        question: Embeddings of n questions.
        passage: Embeddings of their passages. The passages of the other questions are negatives.
        mined_passages: Embeddings of further negatives of all questions, such as BM25 results.

    Requirements: a passage that answers two questions of the batch is a false negative.
    `Scores.from_pairs(…).exclude_negatives(ids, ids)` leaves it out.

    Relations:
    `info_nce(Scores.from_pairs(question, torch.cat([passage, mined_passages]), score=dot)).mean()`. Without
    mined negatives it is `n_pair`.

    Reference: Karpukhin et al., Dense Passage Retrieval for Open-Domain Question Answering, EMNLP 2020.
    """
    check_rows(question=question, passage=passage)
    candidates = passage if mined_passages is None else torch.cat([passage, mined_passages])
    return info_nce(Scores.from_pairs(question, candidates, score=dot)).mean()

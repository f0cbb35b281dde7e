"""Dense passage retrieval: a question finds its passage among those of the batch and mined ones."""

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
    r"""Two encoders and a dot product, no temperature:

    \[ \mathcal L = -\frac1n \sum_i \log \frac{e^{q_i^\top p_i}}{\sum_{j} e^{q_i^\top p_j} + \sum_{l} e^{q_i^\top p_l^-}} \]

    The passages of the other questions are negatives, and so are the `mined` ones (found by BM25, say) of all questions.

    Requirements: a passage that answers two questions of the batch is a false negative; `pairs(…).skip(ids, ids)` leaves it out.

    Relations: `info_nce(pairs(question, torch.cat([passage, mined]), score=dot)).mean()`; without mined negatives `n_pair`.

    Reference: Karpukhin et al., Dense Passage Retrieval for Open-Domain Question Answering, EMNLP 2020.
    """
    check_rows(question=question, passage=passage)
    candidates = passage if mined_passages is None else torch.cat([passage, mined_passages])
    return info_nce(Scores.from_pairs(question, candidates, score=dot)).mean()

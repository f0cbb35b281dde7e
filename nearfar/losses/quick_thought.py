"""Quick-Thought: classification of the neighboring sentences among the sentences of a batch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.scores import Scores, dot
from nearfar.scores.candidate_roles import as_ids


def quick_thought(
    queries: Float[Tensor, "n d"], candidates: Float[Tensor, "n d"], passage_ids: Int[Tensor, " n"], window: int = 1
) -> Float[Tensor, " n"]:
    r"""Compute the InfoNCE loss of each sentence's neighbors.

    Two encoders embed the same n sentences:

    \[ \ell_s = -\sum_{c \in C(s)} \log \frac{e^{f(s)^\top g(c)}}{\sum_{s' \ne s} e^{f(s)^\top g(s')}} \]

    The neighbors C(s) are the sentences of the same passage at most `window` places before or after. The
    logarithm is essential. With bare probabilities the gradient vanishes exactly where a neighbor is ranked
    last.

    Args:
        queries: Embeddings f(s) of the sentences, in the order of the text.
        candidates: Embeddings g(s) of the same sentences.
        passage_ids: Passage of each sentence.
        window: Largest distance of a neighbor, in sentences.

    Shapes: returns `(n,)`, 0 for sentences without neighbors.

    Relations: a softmax over candidates, `info_nce` once for each place of the window. It is not negative
    sampling.

    Reference: Logeswaran, Lee, An Efficient Framework for Learning Sentence Representations, ICLR 2018.
    """
    check_rows(queries=queries, candidates=candidates)
    passage_ids = as_ids(passage_ids, len(queries), "quick_thought: passage_ids")
    place = torch.arange(len(queries), device=queries.device)
    loss = queries.new_zeros(len(queries))
    for offset in (*range(-window, 0), *range(1, window + 1)):
        there = (place + offset).clamp(0, max(len(queries) - 1, 0))
        neighbour = (there == place + offset) & (passage_ids[there] == passage_ids)
        S = Scores(
            dot.prepare_vectors(queries), dot.prepare_vectors(candidates), torch.where(neighbour, there, -1), place
        ).exclude_negatives(place, place)
        loss = loss + info_nce(S)
    return loss

"""Quick-Thought: which of these sentences stands next to this one?"""

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
    r"""Each neighbour is to be found among the sentences of the batch, by two encoders of the same n sentences:

    \[ \ell_s = -\sum_{c \in C(s)} \log \frac{e^{f(s)^\top g(c)}}{\sum_{s' \ne s} e^{f(s)^\top g(s')}} \]

    The neighbours C(s) are the sentences of the same passage at most `window` places before or behind. The
    logarithm is essential: of bare probabilities the gradient vanishes exactly where a neighbour is ranked last.

    Shapes: rows in the order of the text; `passage` says which text a row is from. Gives `(n,)`, 0 without neighbours.

    Relations: a softmax over candidates, `info_nce` once for each place of the window; not negative sampling.

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

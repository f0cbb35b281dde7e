"""Linear relational embedding: a relation is a matrix that takes the subject to the object."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.argument_checks import check_rows
from nearfar.losses.info_nce import info_nce
from nearfar.losses.softmax import build_class_scores
from nearfar.scores import squared_euclidean


def lre(
    relation: Float[Tensor, "n d d"], subject: Float[Tensor, "n d"], entities: Float[Tensor, "m d"], object_ids: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    r"""\[ \ell_i = -\log \frac{e^{-\lVert R_i s_i - e_{o_i} \rVert^2}}{\sum_{v} e^{-\lVert R_i s_i - e_v \rVert^2}} \]

    Shapes: for each of n triples the relation's matrix and the subject's vector; `obj` names its row of `entities`. Gives `(n,)`.

    Requirements: the sum runs over all entities; the push away from the wrong ones keeps them from shrinking to one point.

    Relations: `info_nce` on squared distances; TransE translates instead of multiplying, and has a margin instead of a softmax.

    Reference: Paccanaro, Hinton, Learning Distributed Representations of Concepts using Linear Relational Embedding, IEEE TKDE 2001.
    """
    check_rows(relation=relation, subject=subject)
    predicted = torch.einsum("nij,nj->ni", relation, subject)
    return info_nce(build_class_scores(predicted, entities, object_ids, score=squared_euclidean))

"""Linear relational embedding (LRE): each relation is a matrix that maps the subject to the object."""

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
    r"""Compute the LRE loss of each triple.

    \[ \ell_i = -\log \frac{e^{-\lVert R_i s_i - e_{o_i} \rVert^2}}{\sum_{v} e^{-\lVert R_i s_i - e_v \rVert^2}} \]

    Args:
        relation: Matrix of each triple's relation.
        subject: Vector of each triple's subject.
        entities: Vectors of all entities.
        object_ids: Row of `entities` that holds each triple's object.

    Shapes: n triples give `(n,)`.

    Requirements: the sum runs over all entities. The push away from the wrong entities keeps all entities
    from shrinking to one point.

    Relations: `info_nce` on squared distances. TransE adds a vector instead of multiplying by a matrix, and
    has a margin instead of a softmax.

    Reference: Paccanaro, Hinton, Learning Distributed Representations of Concepts using Linear Relational
    Embedding, IEEE TKDE 2001.
    """
    check_rows(relation=relation, subject=subject)
    predicted = torch.einsum("nij,nj->ni", relation, subject)
    return info_nce(build_class_scores(predicted, entities, object_ids, score=squared_euclidean))

"""Local aggregation: close neighbors attract, background neighbors repel.

Other samples have no effect.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nearfar.core.argument_checks import check_masks, check_rows
from nearfar.losses.info_nce import mil_nce
from nearfar.scores import Scalar, Scores, cosine


def local_aggregation(
    z: Float[Tensor, "n d"], background_neighbors: Float[Tensor, "n k d"], is_close: Bool[Tensor, "n k"], temperature: Scalar = 0.07
) -> Float[Tensor, " n"]:
    r"""Compute the local aggregation loss of each row.

    \[ \ell_i = -\log \frac{P(C_i \cap B_i \mid v_i)}{P(B_i \mid v_i)}, \qquad
       P(A \mid v) = \frac1Z \sum_{j \in A} e^{\cos(v_j, v) / \tau} \]

    \(B_i\) are the k stored vectors nearest to v. \(C_i\) are the vectors in the same cluster (of several
    clusterings). The partition function cancels, so it needs no estimate.

    Args:
        z: Embeddings of the rows.
        background_neighbors: Background neighbors of each row, `bank[nearest]`.
        is_close: Mask of the background neighbors that are also in \(C_i\).
        temperature: Temperature of the cosines.

    Shapes: returns `(n,)`, 0 for rows without close neighbors.

    Relations: `mil_nce` with the close neighbors as positives. It is `instance_softmax` if the only close
    neighbor is the sample itself and the background is the whole bank.

    Reference: Zhuang, Zhai, Yamins, Local Aggregation for Unsupervised Learning of Visual Embeddings,
    ICCV 2019.
    """
    check_rows(z=z, background_neighbors=background_neighbors)
    check_masks(background_neighbors.shape[:2], is_close=is_close)
    own = torch.einsum("nd,nkd->nk", cosine.prepare_vectors(z), cosine.prepare_vectors(background_neighbors))
    nothing = own.new_empty(len(own), 0)
    sign = torch.where(is_close, 1, -1).to(torch.int8)
    return mil_nce(Scores(nothing, nothing[:0], private_scores=own, private_signs=sign) / temperature)

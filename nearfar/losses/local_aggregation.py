"""Local aggregation: near neighbours come nearer, background neighbours give way, the rest does not matter."""

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
    r"""\[ \ell_i = -\log \frac{P(C_i \cap B_i \mid v_i)}{P(B_i \mid v_i)}, \qquad
       P(A \mid v) = \frac1Z \sum_{j \in A} e^{\cos(v_j, v) / \tau} \]

    \(B_i\) are the k remembered vectors nearest to v, \(C_i\) those in the same cluster (of several clusterings);
    `close` says which of \(B_i\) are in \(C_i\). The partition function cancels: nothing has to be estimated.

    Shapes: `background` holds each row's own neighbours, `bank[nearest]`. Gives `(n,)`; 0 where no neighbour is close.

    Relations: `info_nce_in` with the close neighbours as positives. With one close neighbour, itself, and the whole
    bank as background it is `instance_softmax`.

    Reference: Zhuang, Zhai, Yamins, Local Aggregation for Unsupervised Learning of Visual Embeddings, ICCV 2019.
    """
    check_rows(z=z, background_neighbors=background_neighbors)
    check_masks(background_neighbors.shape[:2], is_close=is_close)
    own = torch.einsum("nd,nkd->nk", cosine.prepare_vectors(z), cosine.prepare_vectors(background_neighbors))
    nothing = own.new_empty(len(own), 0)
    sign = torch.where(is_close, 1, -1).to(torch.int8)
    return mil_nce(Scores(nothing, nothing[:0], private_scores=own, private_signs=sign) / temperature)

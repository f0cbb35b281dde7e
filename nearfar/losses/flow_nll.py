"""Negative log-likelihood of a normalizing flow: how Gaussian embeddings are after an invertible map."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows


def flow_nll(z: Float[Tensor, "n d"], log_det: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Compute the negative log-likelihood of each row under a normalizing flow.

    The flow is \(z = f^{-1}(u)\), \(z \sim \mathcal N(0, I)\):

    \[ \ell_i = -\log p_Z(z_i) - \log \left|\det \frac{\partial f^{-1}(u_i)}{\partial u_i}\right|
             = \tfrac12 \lVert z_i \rVert^2 + \tfrac d2 \log 2\pi - \text{log\_det}_i \]

    The value is in nats. Divide it by d to compare widths. Without the determinant all vectors would shrink
    to 0.

    Args:
        z: Outputs of the flow.
        log_det: Log-determinant of the flow's Jacobian for each row.

    Shapes: `(n, d)` and `(n,)` give `(n,)`.

    Relations: BERT-flow trains the map on frozen sentence vectors. Whitening is the best of the affine maps.

    Reference: Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020.
    """
    check_rows(z=z)
    check_rows(1, z=z, log_det=log_det)
    return z.square().sum(1) / 2 + z.shape[1] / 2 * math.log(2 * math.pi) - log_det

"""The likelihood of a normalising flow: how Gaussian are embeddings after an invertible map?"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from nearfar.core.argument_checks import check_rows


def flow_nll(z: Float[Tensor, "n d"], log_det: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    r"""Minus the log-likelihood of u under \(z = f^{-1}(u)\), \(z \sim \mathcal N(0, I)\):

    \[ \ell_i = -\log p_Z(z_i) - \log \left|\det \frac{\partial f^{-1}(u_i)}{\partial u_i}\right|
             = \tfrac12 \lVert z_i \rVert^2 + \tfrac d2 \log 2\pi - \text{log\_det}_i \]

    in nats; divide by d to compare widths. Without the determinant everything would shrink to 0.

    Shapes: `(n, d)` and `(n,)` give `(n,)`.

    Relations: BERT-flow trains the map on frozen sentence vectors; of affine maps whitening is the best one.

    Reference: Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020.
    """
    check_rows(z=z)
    check_rows(1, z=z, log_det=log_det)
    return z.square().sum(1) / 2 + z.shape[1] / 2 * math.log(2 * math.pi) - log_det

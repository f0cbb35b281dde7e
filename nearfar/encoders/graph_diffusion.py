r"""Graph diffusion: each node receives from all others over walks of every length.

Short walks have more weight.

\[ S_\text{PPR} = \alpha \sum_{k=0}^{\infty} (1 - \alpha)^k \hat A^k
     = \alpha \big(I - (1 - \alpha) \hat A\big)^{-1}, \qquad
   S_\text{heat} = e^{-t} \sum_{k=0}^{\infty} \frac{t^k}{k!} \hat A^k = e^{t (\hat A - I)} \]

S is dense although \(\hat A\) is sparse, so S is never computed. A convolution only needs S H. All
eigenvalues of \(\hat A\) lie in [-1, 1], where a series of Chebyshev polynomials converges fastest. Both
functions have such a series in closed form:

\[ S H = \sum_{k=0}^{K} c_k\, T_k(\hat A) H, \qquad
   T_0 = I, \quad T_1 = \hat A, \quad T_{k+1} = 2 \hat A\, T_k - T_{k-1} \]

For \(\alpha = 0.2\) twenty products with \(\hat A\) leave an error of one in a million, for a graph of any
size. Nothing is cached between steps, and no cache is needed: the diffusion of another graph takes no
preparation.

Reference: Klicpera, Weißenberger, Günnemann, Diffusion Improves Graph Learning, NeurIPS 2019.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.special import ive
from torch import Tensor

from nearfar.encoders.sparse_products import CSRArrays, as_csr, promote_to_float32

SERIES_TOLERANCE = 1e-6
"""Maximum error of a series: largest singular value of its difference from S.

The largest singular value of S itself is 1.
"""


@dataclass(frozen=True)
class GraphDiffusion:
    """Diffusion matrix S of a graph.

    A graph encoder multiplies by S or by the links themselves.
    """

    links: CSRArrays
    r"""Matrix \(\hat A\), symmetric."""
    coefficients: Sequence[float]
    """Coefficients c of the Chebyshev polynomials."""

    def __call__(self, h: Float[Tensor, "nodes d"]) -> Float[Tensor, "nodes d"]:
        """Return S h. The gradient goes to h."""
        return _Spread.apply(self.links, self.coefficients, h)


def compute_pagerank_coefficients(teleport_probability: float) -> list[float]:
    r"""Compute the Chebyshev coefficients of personalized PageRank.

    Its walks end at each node with the probability \(\alpha > 0\), the teleport probability:

    \[ \frac{\alpha}{1 - b x} = \frac{\alpha}{w} \Big(1 + 2 \sum_{k \ge 1} r^k T_k(x)\Big),
       \qquad b = 1 - \alpha, \quad w = \sqrt{1 - b^2}, \quad r = \frac{b}{1 + w} \]
    """
    b = 1 - teleport_probability
    w = math.sqrt(1 - b * b)
    r = b / (1 + w)
    terms = math.ceil(math.log(SERIES_TOLERANCE * w * (1 - r) / (2 * teleport_probability), r)) if r else 1
    return [(1 if k == 0 else 2) * teleport_probability / w * r**k for k in range(terms)]


def compute_heat_coefficients(diffusion_time: float) -> list[float]:
    r"""Compute the Chebyshev coefficients of the heat kernel.

    Its walks have t steps on average, the diffusion time. The coefficients are modified Bessel functions:

    \[ e^{t (x - 1)} = e^{-t} \Big(I_0(t) + 2 \sum_{k \ge 1} I_k(t)\, T_k(x)\Big) \]
    """
    bessel = (float(ive(k, diffusion_time)) for k in itertools.count())  # `ive` is I_k times e^-t
    found = list(itertools.takewhile(lambda value: value > SERIES_TOLERANCE / 10, bessel))
    return [found[0], *(2 * value for value in found[1:])]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, links: CSRArrays, coefficients: Sequence[float], h: Tensor) -> Tensor:
        ctx.links, ctx.coefficients = links, coefficients
        return _series(links, coefficients, h)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[None, None, Tensor]:  # type: ignore[override]
        return None, None, _series(ctx.links, ctx.coefficients, gradient)  # S is symmetric


def _series(links: CSRArrays, coefficients: Sequence[float], h: Tensor) -> Tensor:
    """Evaluate the series in place, with three tables for any number of terms.

    To allocate a new table for each product would take longer than the product.
    """
    exact = promote_to_float32(h)
    total = coefficients[0] * exact
    if len(coefficients) > 1:
        with torch.autocast(h.device.type, enabled=False):
            matrix = as_csr(links, exact)
            before, now = exact.clone(), matrix @ exact
            total.add_(now, alpha=coefficients[1])
            for c in coefficients[2:]:
                before, now = now, torch.addmm(before, matrix, now, beta=-1, alpha=2, out=before)
                total.add_(now, alpha=c)
    return total.to(h.dtype)

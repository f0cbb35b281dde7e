"""Product of a sparse and a dense matrix.

The backward pass is a product by rows, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

CSRArrays = Sequence[Tensor]
"""Sparse matrix by rows, as in `nearfar.data.graphs.dataset`: row starts, columns, values."""


def multiply(matrix: CSRArrays, transposed: CSRArrays, dense: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
    """Return matrix @ dense, (n, m) by (m, d). The gradient goes to `dense` only.

    Args:
        matrix: the sparse matrix.
        transposed: its transpose, or the matrix itself if it is symmetric. Torch would otherwise convert rows
            to columns in every backward pass, which takes longer than the product.
        dense: the dense matrix.
    """
    return _Multiply.apply(matrix, transposed, dense)


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, matrix: CSRArrays, transposed: CSRArrays, dense: Tensor) -> Tensor:
        ctx.transposed = transposed
        return _product(matrix, dense)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[None, None, Tensor]:  # type: ignore[override]
        return None, None, _product(ctx.transposed, gradient)


def _product(matrix: CSRArrays, dense: Tensor) -> Tensor:
    exact = promote_to_float32(dense)
    with torch.autocast(dense.device.type, enabled=False):
        return (as_csr(matrix, exact) @ exact).to(dense.dtype)


def promote_to_float32(dense: Tensor) -> Tensor:
    """Convert half precision to float32.

    Not every device has sparse products in half precision.
    """
    return dense if dense.dtype == torch.float64 else dense.float()


def as_csr(matrix: CSRArrays, dense: Float[Tensor, "m d"]) -> Tensor:
    """Build the torch tensor of the matrix that multiplies `dense`."""
    begins, columns, values = matrix
    with warnings.catch_warnings():
        # Products are correct despite the warning.
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        shape = (len(begins) - 1, len(dense))
        return torch.sparse_csr_tensor(begins, columns, values.to(dense.dtype), size=shape, check_invariants=False)

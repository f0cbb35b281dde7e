"""A sparse matrix times a dense one, with a backward pass that is again a product of rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

CSRArrays = Sequence[Tensor]
"""A sparse matrix by rows, as `nearfar.data.graphs.dataset` has it: where each begins, columns, values."""


def multiply(matrix: CSRArrays, transposed: CSRArrays, dense: Float[Tensor, "m d"]) -> Float[Tensor, "n d"]:
    """matrix @ dense, (n, m) by (m, d); the gradient goes to `dense` only.

    `transposed`: the matrix's transpose, or the matrix itself if it is symmetric. Handed in, because torch would turn rows into
    columns again in every backward pass, which takes longer than the product.
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
    """In single precision at least: not every device has sparse products in half."""
    return dense if dense.dtype == torch.float64 else dense.float()


def as_csr(matrix: CSRArrays, dense: Float[Tensor, "m d"]) -> Tensor:
    """The matrix as torch multiplies `dense` by it."""
    begins, columns, values = matrix
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # products have been right all along
        shape = (len(begins) - 1, len(dense))
        return torch.sparse_csr_tensor(begins, columns, values.to(dense.dtype), size=shape, check_invariants=False)

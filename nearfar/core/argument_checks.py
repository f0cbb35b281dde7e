"""Argument checks for losses, scores and measures.

Shapes and dtypes are always checked, which costs a microsecond. Values are checked only if they can be read
without waiting for a GPU and without touching a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.core.errors import UsageError


def check_rows(min_dims: int = 2, /, **named: Tensor) -> None:
    """Raise `UsageError` unless all arguments are non-empty floating-point tensors (n, …).

    All tensors must have the same n, which is at least 1.

    Args:
        min_dims: Least number of dimensions of each tensor.
        **named: Tensors by the names that error messages use.
    """
    counts = {_count(x, min_dims) for x in named.values()}
    if len(counts) == 1 and 0 not in counts:  # fast path, about a microsecond
        return
    check_float_tensors(min_dims, **named)
    for name, x in named.items():
        if not len(x):
            raise UsageError(f"`{name}` must not be empty, got the shape {tuple(x.shape)}")
    check_equal_lengths(**named)


def check_float_tensors(min_dims: int = 2, /, **named: Tensor) -> None:
    """Raise `UsageError` unless all are floating-point tensors of `min_dims` dimensions or more.

    Tensors may be empty.
    """
    for name, x in named.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            found = str(x.dtype).removeprefix("torch.") if isinstance(x, Tensor) else type(x).__name__
            raise UsageError(f"`{name}` must be a floating-point tensor, got {found}")
        if x.dim() < min_dims:
            wanted = ", ".join(["n", *"def"[: min_dims - 1]]) if min_dims > 1 else "n,"
            raise UsageError(f"`{name}` must have the shape ({wanted}), one row for each sample, got {tuple(x.shape)}")


def check_rows_of_same_shape(**named: Tensor) -> None:
    """Raise `UsageError` unless all are non-empty floating-point tensors of the same shape (n, d)."""
    check_rows(**named)
    check_equal_shapes(**named)


def check_equal_shapes(**named: Tensor) -> None:
    """Raise `UsageError` unless all tensors have the same shape."""
    if len({x.shape for x in named.values()}) > 1:
        shapes = " and ".join(str(tuple(x.shape)) for x in named.values())
        raise UsageError(f"{_names(named)} must have the same shape, got {shapes}")


def check_equal_lengths(**named: Tensor) -> None:
    """Raise `UsageError` unless all tensors have the same number of rows."""
    if len({len(x) for x in named.values()}) > 1:
        raise UsageError(f"{_names(named)} must have the same number of rows, got {' and '.join(str(len(x)) for x in named.values())}")


def check_masks(shape: tuple[int, ...], /, **named: Tensor) -> None:
    """Raise `UsageError` unless all are tensors of truth values with the given shape."""
    for name, x in named.items():
        if not isinstance(x, Tensor) or x.dtype.is_floating_point or x.dtype.is_complex or x.dtype.itemsize > 1 or x.shape != shape:
            found = f"{x.dtype} of the shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise UsageError(f"`{name}` must be a boolean tensor of the shape {tuple(shape)}, got {found}")


def check_positive(**named: float | Tensor) -> None:
    """Raise `UsageError` unless all numbers are greater than 0.

    Numbers that `read_host_number` cannot read are not checked.
    """
    for name, x in named.items():
        value = read_host_number(x)
        if value is not None and not value > 0:
            raise UsageError(f"`{name}` must be positive, got {value:g}")


def read_host_number(x: float | Tensor) -> float | None:
    """Return the value as a float, or None if it cannot be read safely.

    The result is None for a tensor on a GPU (reading it would wait for the GPU), for a tensor that requires a
    gradient, for a tensor of more than one element, and within `torch.compile`.
    """
    if not isinstance(x, Tensor):
        return float(x)
    hidden = x.device.type != "cpu" or x.requires_grad or x.numel() != 1 or torch.compiler.is_compiling()
    return None if hidden else float(x)


def _count(x: Tensor, least_dims: int) -> int:
    """Return the number of rows, or 0 if the tensor is invalid."""
    return x.shape[0] if isinstance(x, Tensor) and x.is_floating_point() and x.dim() >= least_dims else 0


def _names(named: dict[str, Tensor]) -> str:
    return " and ".join(f"`{name}`" for name in named)

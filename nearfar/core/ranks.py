"""Ranks of a process group: rank numbers and communication between ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from nearfar.core.errors import UsageError


def get_world_size() -> int:
    """Return the number of ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def get_rank() -> int:
    """Return the rank of this process; 0 without a process group."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def get_message_device() -> torch.device:
    """Return the device of small messages between ranks.

    The device is the CPU if the group has a backend for it, so that no message waits for a GPU.
    """
    return torch.device("cpu" if "cpu" in dist.get_backend_config() else "cuda")


def gather_from_ranks(rows: Tensor) -> tuple[Tensor, slice]:
    """Gather the rows of all ranks, in rank order.

    Ranks may have different numbers of rows, also none. The result has no gradient; see
    `gather_with_gradient`.

    Args:
        rows: Rows of this rank, shape (n_r, …).

    Returns:
        Rows of all ranks, shape (sum of n_r, …), and the slice of this rank's rows.

    Raises:
        UsageError: On every rank, if the rows differ in shape or dtype between ranks.
    """
    if get_world_size() == 1:
        return rows, slice(0, len(rows))
    sizes = gather_numbers([len(rows), hash_parts(rows.dtype, tuple(rows.shape[1:]))])
    counts = [int(size) for size in sizes[:, 0]]
    if (sizes[:, 1] != sizes[0, 1]).any():
        raise UsageError(
            f"gather: rows must have one shape and dtype on all ranks, but they differ (this rank has {describe_tensor(rows)})"
        )
    start = sum(counts[: get_rank()])
    return concat_rank_rows(rows, counts), slice(start, start + len(rows))


def concat_rank_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """Concatenate the rows of all ranks, where rank r has `counts[r]` rows."""
    padded = torch.cat([rows, rows.new_zeros(max(counts) - len(rows), *rows.shape[1:])]).contiguous()
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def gather_with_gradient(rows: Tensor) -> Tensor:
    """Gather the rows of all ranks, in rank order, with their gradient.

    Use it in training loops with `DistributedDataParallel`, where every rank has its own rows and a loss
    needs the rows of all ranks. Ranks may have different numbers of rows. Gather labels the same way; they
    have no gradient. Without a process group the rows are returned unchanged.

        model = DistributedDataParallel(encoder)
        for x0, x1 in loader:  # this rank's rows
            z0, z1 = model(torch.cat([x0, x1])).chunk(2)
            nt_xent(gather_with_gradient(z0), gather_with_gradient(z1)).backward()
            optimizer.step()

    The gradient of a row is the sum over the ranks of the gradients with respect to that row. Every rank
    above computes the same loss of the global batch, so the gradient at its rows is `world_size` times the
    gradient of one loss. DDP takes the mean over the ranks, which divides by the world size. Parameters
    therefore get exactly the gradient of one process with the global batch (factor 1). Losses of a rank's own
    rows against all rows (`local_loss` of open_clip) get the gradient of the mean of these losses over the
    ranks.

    Every rank must call this function, and run backward through it, equally often. The result is
    differentiable once.
    """
    return rows if get_world_size() == 1 else _Gather.apply(rows)  # type: ignore[return-value]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        whole, ctx.own = gather_from_ranks(rows)
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # type: ignore[override]
        total = grads[0].clone(memory_format=torch.contiguous_format)
        sum_over_ranks([total])
        return total[ctx.own]


def gather_numbers(numbers: Sequence[float]) -> Tensor:
    """Gather a list of numbers from all ranks, as a CPU tensor (ranks, numbers) in float64."""
    own = torch.tensor(numbers, dtype=torch.float64, device=get_message_device())
    everyone = [torch.empty_like(own) for _ in range(get_world_size())]
    dist.all_gather(everyone, own)
    return torch.stack(everyone).cpu()


def hash_parts(*parts: object) -> int:
    """Return a 48-bit hash, which float64 represents exactly."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")


def describe_tensor(tensor: Tensor) -> str:
    """Return the shape and dtype of a tensor as text."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def sum_over_ranks(tensors: list[Tensor]) -> None:
    """Replace each tensor in place by its sum over the ranks, in one message."""
    if get_world_size() == 1 or not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    start = 0
    for t in tensors:
        t.copy_(flat[start : start + t.numel()].view_as(t))
        start += t.numel()


def is_set_on_any_rank(flag: bool) -> bool:
    """Return True on all ranks if the flag is set on at least one rank."""
    if get_world_size() == 1:
        return flag
    count = torch.tensor([int(flag)], device=get_message_device())
    dist.all_reduce(count)
    return bool(count)


def broadcast_from_first_rank(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor in place by the tensor of rank 0."""
    for t in tensors if get_world_size() > 1 else ():
        buffer = t.contiguous()
        dist.broadcast(buffer, 0)
        t.copy_(buffer)

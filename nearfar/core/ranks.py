"""Several processes as one: who am I, and what all ranks hold together, in rank order."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> int:
    """Number of ranks; 1 where no process group exists."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number in the group; 0 where there is none."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def numbers_device() -> torch.device:
    """Where small numbers travel between ranks: over the hosts if the group has a way there, so that no GPU is waited for."""
    return torch.device("cpu" if "cpu" in dist.get_backend_config() else "cuda")


def gather(rows: Tensor) -> tuple[Tensor, slice]:
    """Rows of all ranks along the first axis, in rank order, and where this rank's own rows lie in them.

    Ranks may hold different numbers of rows (also none): sizes first, then padded rows, then trimmed. Not
    differentiable; the callers cut the graph here and route gradients themselves.
    """
    if world() == 1:
        return rows, slice(0, len(rows))
    own = torch.tensor([len(rows)], device=numbers_device())
    sizes = [torch.zeros_like(own) for _ in range(world())]
    dist.all_gather(sizes, own)
    counts = [int(s) for s in sizes]
    padded = torch.cat([rows, rows.new_zeros(max(counts) - len(rows), *rows.shape[1:])]).contiguous()
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    start = sum(counts[: rank()])
    return torch.cat([p[:c] for p, c in zip(parts, counts, strict=True)]), slice(start, start + len(rows))


def sum_over_ranks(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over the ranks, in one message."""
    if world() == 1 or not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    start = 0
    for t in tensors:
        t.copy_(flat[start : start + t.numel()].view_as(t))
        start += t.numel()


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on at least one rank: the same answer on all."""
    if world() == 1:
        return flag
    count = torch.tensor([int(flag)], device=numbers_device())
    dist.all_reduce(count)
    return bool(count)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by that of rank 0."""
    for t in tensors if world() > 1 else ():
        buffer = t.contiguous()
        dist.broadcast(buffer, 0)
        t.copy_(buffer)

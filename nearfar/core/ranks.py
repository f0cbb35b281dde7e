"""Several processes as one: who am I, and rows of all ranks in rank order."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> int:
    """Number of ranks; 1 where no process group exists."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number in the group; 0 where there is none."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def gather(rows: Tensor) -> tuple[Tensor, slice]:
    """Rows of all ranks along the first axis, in rank order, and where this rank's own rows lie in them.

    Ranks may hold different numbers of rows (also none): sizes first, then padded rows, then trimmed. Not
    differentiable; the callers cut the graph here and route gradients themselves.
    """
    if world() == 1:
        return rows, slice(0, len(rows))
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world())]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
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

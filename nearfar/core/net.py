"""All state of a method in one `state_dict`: named parts, followers, queues and banks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Net(nn.Module):
    """Named parts: `Net(encoder=…, head=…, scale=nn.Parameter(…), prior=tensor)`.

    Modules and parameters are registered as such, plain tensors become buffers: whatever a method remembers
    is in `net.state_dict()` and nowhere else. `sizes` repeats what the data said of themselves; it is no state.
    """

    sizes: Mapping[str, Any] = {}

    def __init__(self, **parts: nn.Module | nn.Parameter | Tensor):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    if TYPE_CHECKING:  # which parts there are, and of what kind, only the recipe knows

        def __getattr__(self, name: str) -> Any: ...


class Ema(nn.Module):
    r"""A copy that follows another module: \(\theta' \leftarrow m\,\theta' + (1 - m)\,\theta\).

    It receives no gradient. Parameters follow; buffers (batch statistics) stay its own, because its inputs are
    its own. `follow` belongs into `Recipe.update`, after the optimizer, never into a forward pass.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(False)

    def forward(self, *args, **kwargs):
        with torch.no_grad():
            return self.module(*args, **kwargs)

    @torch.no_grad()
    def follow(self, source: nn.Module, ema_momentum: float) -> None:
        mine, theirs = list(self.module.parameters()), [p.detach() for p in source.parameters()]
        torch._foreach_lerp_(mine, theirs, 1.0 - ema_momentum)  # pyright: ignore


class Queue(nn.Module):
    """The last `size` rows pushed, oldest overwritten first; starts as random unit vectors.

    Push in `Recipe.update`, read in `Recipe.objective`: the rows read are then always of earlier steps, and a
    positive is never among its own negatives.
    """

    rows: Tensor
    head: Tensor

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.register_buffer("rows", F.normalize(torch.empty(size, dim).normal_(), dim=1))
        self.register_buffer("head", torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def push(self, z: Tensor) -> None:
        z = z[-len(self.rows) :].to(self.rows.dtype)
        at = (self.head + torch.arange(len(z), device=z.device)) % len(self.rows)
        self.rows.index_copy_(0, at, z)
        self.head.copy_((self.head + len(z)) % len(self.rows))


class MemoryBank(nn.Module):
    """One row for each of `n` samples: `bank[ids]` reads, `bank.put(ids, values)` writes (in `update` or `refresh`)."""

    rows: Tensor

    def __init__(self, num_samples: int, *shape: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("rows", torch.zeros(num_samples, *shape, dtype=dtype))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, ids: Tensor | slice) -> Tensor:
        return self.rows[ids]

    @torch.no_grad()
    def put(self, ids: Tensor | slice, values: Tensor) -> None:
        self.rows[ids] = values.to(self.rows.dtype)

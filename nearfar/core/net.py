"""Modules that hold the state of a method: nets, momentum encoders, queues and memory banks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Net(nn.Module):
    """Container of named parts: `Net(encoder=…, head=…, scale=nn.Parameter(…), prior=tensor)`.

    Modules and parameters are registered as such. Plain tensors become buffers. All state of a method is
    therefore in `net.state_dict()`. `sizes` is a copy of the sizes of the dataset and is not part of the
    state.
    """

    sizes: Mapping[str, Any] = {}

    def __init__(self, **parts: nn.Module | nn.Parameter | Tensor):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    if TYPE_CHECKING:  # names and types of the parts depend on the recipe

        def __getattr__(self, name: str) -> Any: ...


class Ema(nn.Module):
    r"""Momentum encoder: \(\theta' \leftarrow m\,\theta' + (1 - m)\,\theta\).

    The copy receives no gradient. Its parameters follow the parameters of the source module. It keeps
    separate buffers (batch statistics), because its inputs differ from those of the source. Call `follow` in
    `Recipe.update`, after the optimizer, and never in a forward pass.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(False)

    def forward(self, *args, **kwargs):
        with torch.no_grad():
            return self.module(*args, **kwargs)

    @torch.no_grad()
    def follow(self, source: nn.Module, ema_momentum: float) -> None:
        """Move the parameters toward those of `source`; `ema_momentum` is m above."""
        mine, theirs = list(self.module.parameters()), [p.detach() for p in source.parameters()]
        torch._foreach_lerp_(mine, theirs, 1.0 - ema_momentum)  # pyright: ignore


class Queue(nn.Module):
    """Queue of the last `size` rows pushed, for example as negatives.

    A push overwrites the oldest rows first. The queue starts with random unit vectors. Push in
    `Recipe.update` and read in `Recipe.objective`: the rows read then always come from earlier steps, so a
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
        """Add rows of shape (n, dim). Of more than `size` rows, keep the last."""
        z = z[-len(self.rows) :].to(self.rows.dtype)
        at = (self.head + torch.arange(len(z), device=z.device)) % len(self.rows)
        self.rows.index_copy_(0, at, z)
        self.head.copy_((self.head + len(z)) % len(self.rows))


class MemoryBank(nn.Module):
    """Memory bank with one row for each of `num_samples` samples.

    `bank[ids]` reads rows. `bank.put(ids, values)` writes rows; call it in `Recipe.update` or
    `Recipe.refresh`.
    """

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
        """Write `values` to the rows of the samples `ids`."""
        self.rows[ids] = values.to(self.rows.dtype)

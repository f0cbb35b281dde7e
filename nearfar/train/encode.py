"""From samples to representations, in batches, with a trained (or untrained) net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import Net, Recipe, UsageError
from nearfar.train.loader import to_device


@torch.no_grad()
def encode_all(
    recipe: Recipe,
    net: Net,
    data: Any,
    device: torch.device,
    batch: int = 512,
    progress: Callable[[int, int], None] | None = None,
    tower: str = "encoder",
) -> Float[Tensor, "n d"]:
    """The representation of every sample, in order, in fp32 on the CPU. Leaves the net in the mode it was in.

    `data.read(ids)` must give what the encoder takes.
    """
    if batch < 1 or not len(data):
        raise UsageError("encode: there is nothing to encode" if batch >= 1 else f"encode: batch must be at least 1, got {batch}")
    training = net.training
    net.eval()
    parts = []
    batch = len(data) if getattr(data, "together", False) else batch
    try:
        for start in range(0, len(data), batch):
            ids = np.arange(start, min(start + batch, len(data)))
            with torch.compiler.set_stance("force_eager"):  # a last, shorter batch is not worth a compilation
                parts.append(recipe.encode(net, to_device(data.read(ids), device), tower).float().cpu())
            if progress:
                progress(int(ids[-1]) + 1, len(data))
    finally:
        net.train(training)
    return torch.cat(parts)

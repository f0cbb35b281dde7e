"""Encoding of all samples of a dataset, in batches, with a trained or untrained net."""

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
    batch_size: int = 512,
    progress: Callable[[int, int], None] | None = None,
    tower: str = "encoder",
) -> Float[Tensor, "n d"]:
    """Encode every sample, in order.

    The net is left in its previous mode, training or evaluation.

    Args:
        recipe: recipe that encodes.
        net: its net.
        data: dataset. `data.read(ids)` must return the input of the encoder.
        device: device of the net.
        batch_size: samples encoded together.
        progress: function called after each batch with the number of samples done and in total.
        tower: part of the net that encodes.

    Returns:
        The representations (n, d), in float32 on the CPU.

    Raises:
        UsageError: if the data are empty or the batch size is below 1.
    """
    if batch_size < 1 or not len(data):
        raise UsageError("encode: there is nothing to encode" if batch_size >= 1 else f"encode: batch must be at least 1, got {batch_size}")
    training = net.training
    net.eval()
    parts = []
    batch_size = len(data) if getattr(data, "encode_in_one_batch", False) else batch_size
    try:
        for start in range(0, len(data), batch_size):
            ids = np.arange(start, min(start + batch_size, len(data)))
            with torch.compiler.set_stance("force_eager"):  # do not compile for a shorter last batch
                parts.append(recipe.encode(net, to_device(data.read(ids), device), tower).float().cpu())
            if progress:
                progress(int(ids[-1]) + 1, len(data))
    finally:
        net.train(training)
    return torch.cat(parts)

"""Images that the GPU holds itself: reading a batch then is no transfer, and nothing waits for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nearfar.data.common.stores import InMemory
from nearfar.data.images.dataset import Images

SHARE = 1 / 8
"""Of the GPU's free memory: the rest is for training."""


def on_device(data: Any, device: torch.device) -> Any:
    """The same data, on the device if it is a GPU and they are images in memory that take little of its own; else as they are."""
    if device.type != "cuda" or not isinstance(data, Images) or not isinstance(data.store, InMemory):
        return data
    pixels = data.store.pixels
    if pixels.nbytes > SHARE * torch.cuda.mem_get_info(device)[0]:
        return data
    return replace(data, store=replace(data.store, pixels=pixels.to(device)))

"""Images that the GPU holds itself: reading a batch then is no transfer, and nothing waits for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.images.dataset import Images

MAX_SHARE_OF_FREE_MEMORY = 1 / 8
"""Of the GPU's free memory: the rest is for training."""


def cache_on_device(data: Any, device: torch.device) -> Any:
    """The same data, on the device if it is a GPU and they are images in memory that take little of its own; else as they are."""
    if device.type != "cuda" or not isinstance(data, Images) or not isinstance(data.store, InMemoryImageStore):
        return data
    pixels = data.store.pixels
    if pixels.nbytes > MAX_SHARE_OF_FREE_MEMORY * torch.cuda.mem_get_info(device)[0]:
        return data
    return replace(data, store=replace(data.store, pixels=pixels.to(device)))

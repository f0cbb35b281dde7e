"""Cache of images in GPU memory.

Reading a batch then needs no transfer, and nothing waits for one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nearfar.data.common.image_stores import InMemoryImageStore
from nearfar.data.images.dataset import Images

MAX_SHARE_OF_FREE_MEMORY = 1 / 8
"""Largest share of the GPU's free memory for cached images. The rest is for training."""


def cache_on_device(data: Any, device: torch.device) -> Any:
    """Copy images to the GPU if they take little of its memory.

    Only images in memory are copied, and only to a GPU. They may take at most `MAX_SHARE_OF_FREE_MEMORY` of
    its free memory. All other data are returned unchanged.
    """
    if device.type != "cuda" or not isinstance(data, Images) or not isinstance(data.store, InMemoryImageStore):
        return data
    pixels = data.store.pixels
    if pixels.nbytes > MAX_SHARE_OF_FREE_MEMORY * torch.cuda.mem_get_info(device)[0]:
        return data
    return replace(data, store=replace(data.store, pixels=pixels.to(device)))

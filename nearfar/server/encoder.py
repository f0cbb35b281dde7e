"""Encoder whose vectors do not depend on the other samples in the batch.

The order of additions in a matrix product depends on the matrix shapes. Therefore all batches have the same
number of rows (the last one is filled up), and only a sample's own length decides its padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from nearfar.train.loader import to_device
from nearfar.train.model import Model

BATCH_SIZES = {"cpu": 8, "cuda": 64}
"""Rows of every batch, by device. A full batch of 64 rows costs a GPU little more than one row, but a CPU
64 times as much."""


class BatchEncoder:
    """Trained net for batches of several requests.

    `tower` names one of its encoders.
    """

    def __init__(self, model: Model, tower: str = "encoder"):
        self.model, self.tower = model, tower
        self.batch_size = BATCH_SIZES.get(model.device.type, 8)

    @torch.no_grad()
    def __call__(self, requests: Sequence[Sequence[Tensor]]) -> list[Float32[np.ndarray, "n d"]]:
        """Return the vectors of each request's samples.

        Samples of equal shape share batches, across requests.
        """
        samples = [sample for request in requests for sample in request]
        vectors: list[np.ndarray] = [np.empty(0)] * len(samples)
        for shape in dict.fromkeys((s.dtype, s.shape) for s in samples):
            alike = [i for i, s in enumerate(samples) if (s.dtype, s.shape) == shape]
            for start in range(0, len(alike), self.batch_size):
                chosen = alike[start : start + self.batch_size]
                for i, vector in zip(chosen, self._encode_batch([samples[i] for i in chosen]), strict=False):
                    vectors[i] = vector
        ends = np.cumsum([len(request) for request in requests])
        return [np.stack(vectors[end - len(request) : end]) for request, end in zip(requests, ends, strict=True)]

    def _encode_batch(self, samples: list[Tensor]) -> Float32[np.ndarray, "n d"]:
        filled = samples + samples[-1:] * (self.batch_size - len(samples))
        x = to_device(torch.stack(filled), self.model.device)
        return self.model.recipe.encode(self.model.net, x, self.tower).float().cpu().numpy()

"""A method of your own is one file: SimCLR with a learned temperature.

    nearfar fit examples/own_method.py --data digits --out run --steps 200

The temperature is learned, starting from `temperature`. All the loop needs is here; the parameter is part of `net`, so it is saved, resumed
and trained like everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from nearfar.core import Card, Net, Recipe
from nearfar.heads import mlp
from nearfar.losses import info_nce
from nearfar.scores import Scores
from nearfar.similarity import choose_views, simclr_views


@dataclass(frozen=True)
class WarmSimCLR(Recipe):
    """SimCLR with a learned temperature."""

    card = Card(
        title="Warm SimCLR", paper="examples/own_method.py", year=2026, modality="image", similarity="data transformation",
        query="augmented image", positive="the other view", negative="the batch", encoder="one, end to end", head="MLP",
        score="cosine / tau, tau learned", loss="NT-Xent", equation=r"-\log \frac{\exp(s_{ij}/\tau)}{\sum_k \exp(s_{ik}/\tau)}",
        family="NCE and softmax", similarity_type=("data transformation",), head_type=("projection",),
    )  # fmt: skip
    dim: int = 64
    """Width of the space where views are compared."""
    temperature: float = 0.5
    """Temperature at the start."""

    def similarity(self, net):
        return choose_views(net.sizes, simclr_views)

    def build(self, sizes, encoder):
        log_temperature = nn.Parameter(torch.tensor(math.log(self.temperature)))
        return Net(encoder=encoder, head=mlp(encoder.dim, encoder.dim, self.dim), log_temperature=log_temperature)

    def embed(self, net, x, rng_key):
        return {v: net.head(net.encoder(x[v])) for v in ("v0", "v1")}

    def objective(self, net, z, rng_key):
        temperature = net.log_temperature.exp()
        return {"loss": info_nce(Scores.from_views(z["v0"], z["v1"]) / temperature).mean(), "temperature": temperature}

"""A table of vectors: the encoder of things that have a number."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nearfar.encoders.family import Build, Family

WIDTH = 100
"""As in word2vec; recipes that build their tables themselves choose their own."""


class Lookup(nn.Module):
    """`words` rows of width `dim`, drawn uniformly from ±1/(2·dim) as word2vec does: short at first, so that all scores are near 0."""

    def __init__(self, words: int, dim: int):
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.empty(words, dim).uniform_(-0.5 / dim, 0.5 / dim))

    def forward(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
        return self.weight[ids]


LOOKUP_ENCODERS: dict[str, Build] = {"lookup": lambda sizes: Lookup(sizes["words"], WIDTH)}
WORDS = Family(of="words, nodes or entities", mark="words", encoders=LOOKUP_ENCODERS, auto=lambda sizes: "lookup")

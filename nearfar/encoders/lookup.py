"""Lookup table of vectors: the encoder of samples that are identified by a number."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nearfar.encoders.family import EncoderBuilder, EncoderFamily

DEFAULT_EMBEDDING_DIM = 100
"""Default width of a table, as in word2vec. Recipes that build their own tables choose their own width."""


class LookupTable(nn.Module):
    """Table of `num_embeddings` rows of width `dim`.

    The rows are drawn uniformly from ±1/(2·dim), as in word2vec. They are short at first, so that all scores
    are near 0.
    """

    def __init__(self, num_embeddings: int, dim: int):
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.empty(num_embeddings, dim).uniform_(-0.5 / dim, 0.5 / dim))

    def forward(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
        return self.weight[ids]


LOOKUP_ENCODERS: dict[str, EncoderBuilder] = {"lookup": lambda sizes: LookupTable(sizes["words"], DEFAULT_EMBEDDING_DIM)}
LOOKUP_FAMILY = EncoderFamily(
    modality_name="words, nodes or entities", size_field="words", builders=LOOKUP_ENCODERS, choose_default=lambda sizes: "lookup"
)

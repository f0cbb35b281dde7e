"""Similarity in knowledge graphs: true triples against triples with one exchanged entity."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views


@dataclass(frozen=True)
class CorruptedTriples(Similarity):
    r"""Rows of true triples with `negatives_per_triple` corruptions each.

    A corruption replaces the head or the tail by another entity. `uniform` replaces either end with
    probability 1/2 (Bordes et al. 2013). `bernoulli` replaces the head with probability \(\mathrm{tph} /
    (\mathrm{tph} + \mathrm{hpt})\) of its relation (Wang et al. 2014). Here tph is the mean number of tails
    per head, and hpt is the mean number of heads per tail. In a one-to-many relation such as "has part",
    another tail is more likely to be true by chance than another head.

    The output is {"head", "relation", "tail": (n,) int64, "other": (n, k) int64, "of_head": (n, k) bool}.
    "other" is the replacing entity.

    Relations: `losses.corrupt_triples` gives whole triples. This class gives only the replacing entity, so
    that no vector is looked up twice.
    """

    num_entities: int
    negatives_per_triple: int = 1
    corruption: Literal["uniform", "bernoulli"] = "uniform"

    def __post_init__(self):
        if self.num_entities < 2:
            raise UsageError(f"there must be at least two entities to replace one, got {self.num_entities}")

    def count(self, data: Any) -> int:
        return len(data.triples)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        chosen = data.triples[rows.ids]
        raw = {"triple": torch.from_numpy(np.ascontiguousarray(chosen.T))}
        if self.corruption == "bernoulli":
            raw["share"] = torch.from_numpy(compute_head_probabilities(data)[chosen[:, 1]])
        return raw

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        head, relation, tail = raw["triple"]
        slots = torch.as_tensor(rows.slots, device=head.device)
        share = raw["share"][:, None] if self.corruption == "bernoulli" else 0.5
        of_head = rng_key("side").uniform(slots, self.negatives_per_triple) < share
        true = torch.where(of_head, head[:, None], tail[:, None])
        away = 1 + rng_key("entity").integers(slots, self.num_entities - 1, self.negatives_per_triple)
        return {"head": head, "relation": relation, "tail": tail, "other": (true + away) % self.num_entities, "of_head": of_head}


@functools.lru_cache(maxsize=2)
def compute_head_probabilities(data: Any) -> Float32[np.ndarray, " relations"]:
    """Compute the probability of each relation that a corruption replaces the head."""
    head, relation, tail = data.triples.T
    count = np.bincount(relation, minlength=len(data.relations))
    heads = np.bincount(np.unique(np.stack([relation, head]), axis=1)[0], minlength=len(count))
    tails = np.bincount(np.unique(np.stack([relation, tail]), axis=1)[0], minlength=len(count))
    tails_a_head, heads_a_tail = count / np.maximum(heads, 1), count / np.maximum(tails, 1)
    return (tails_a_head / np.maximum(tails_a_head + heads_a_tail, 1e-12)).astype(np.float32)

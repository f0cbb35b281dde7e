"""What a knowledge graph states is alike; what it does not state, one end of a true triple exchanged, is not."""

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
    r"""Rows are true triples of `Triples`; each is corrupted `k` times: its head *or* its tail becomes another entity.

    `uniform`: either end by the toss of a coin (Bordes et al. 2013). `bernoulli`: the head with probability
    \(\mathrm{tph} / (\mathrm{tph} + \mathrm{hpt})\) of its relation, where tph is the mean number of tails a head has and hpt the mean
    number of heads a tail has: of a relation of one to many, as "has part", another tail is more likely to be true by chance than
    another head (Wang et al. 2014).

    Gives {"head", "relation", "tail": (n,) int64, "other": (n, k) int64, the entity that comes instead, "of_head": (n, k) bool}.

    Relations: `losses.corrupt` gives whole triples. Here only what changes is named, so that nothing is looked up twice.
    """

    num_entities: int
    negatives_per_triple: int = 1
    corruption: Literal["uniform", "bernoulli"] = "uniform"

    def __post_init__(self):
        if self.num_entities < 2:
            raise UsageError(f"there must be at least two entities to exchange one, got {self.num_entities}")

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
    """For each relation the probability that a corruption is one of the head."""
    head, relation, tail = data.triples.T
    count = np.bincount(relation, minlength=len(data.relations))
    heads = np.bincount(np.unique(np.stack([relation, head]), axis=1)[0], minlength=len(count))
    tails = np.bincount(np.unique(np.stack([relation, tail]), axis=1)[0], minlength=len(count))
    tails_a_head, heads_a_tail = count / np.maximum(heads, 1), count / np.maximum(tails, 1)
    return (tails_a_head / np.maximum(tails_a_head + heads_a_tail, 1e-12)).astype(np.float32)

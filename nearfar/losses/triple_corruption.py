"""Corrupted triples for relation learning: one end of a true triple is replaced."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.random_key import RandomKey


def corrupt_triples(
    triples: Int[Tensor, "n 3"], num_entities: int, num_corruptions: int, rng_key: RandomKey, slots: Int[Tensor, " n"]
) -> Int[Tensor, "n {num_corruptions} 3"]:
    """Corrupt the head or the tail of each (head, relation, tail) triple.

    Each corruption chooses head *or* tail at random and replaces it with another random entity. Corrupting
    only tails would leave the model untrained on (?, relation, tail), which is half of the queries.

    Args:
        triples: Ids of head, relation and tail of each triple.
        num_entities: Number of entities, at least 2.
        num_corruptions: Number of corruptions of each triple.
        rng_key: Random key.
        slots: Slot of each triple.

    Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013.
    """
    if num_entities < 2:
        raise UsageError(f"corrupt_triples: there must be at least two entities, got {num_entities}")
    side = 2 * rng_key("side").integers(slots, 2, num_corruptions)[:, :, None]
    away = 1 + rng_key("entity").integers(slots, num_entities - 1, num_corruptions)[:, :, None]
    changed = triples[:, None].repeat(1, num_corruptions, 1)
    return changed.scatter(2, side, (changed.gather(2, side) + away) % num_entities)

"""False triples for relations: one end of a true one is exchanged."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from nearfar.core.errors import UsageError
from nearfar.core.random_key import Key


def corrupt(triples: Int[Tensor, "n 3"], entities: int, k: int, key: Key, slots: Int[Tensor, " n"]) -> Int[Tensor, "n {k} 3"]:
    """k corruptions of each (head, relation, tail): head *or* tail, by the toss of a coin, becomes another random entity.

    Corrupting tails alone would leave the model untrained in what is asked of it half of the time, (?, relation, tail).

    Reference: Bordes et al., Translating Embeddings for Modeling Multi-relational Data, NIPS 2013.
    """
    if entities < 2:
        raise UsageError(f"corrupt: there must be at least two entities, got {entities}")
    side = 2 * key("side").integers(slots, 2, k)[:, :, None]
    away = 1 + key("entity").integers(slots, entities - 1, k)[:, :, None]
    changed = triples[:, None].repeat(1, k, 1)
    return changed.scatter(2, side, (changed.gather(2, side) + away) % entities)

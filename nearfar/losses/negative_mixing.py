"""Mixed negatives (MoCHi): points between hard negatives, or between a hard negative and the query.

Mixed negatives are harder than the existing ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.random_key import RandomKey
from nearfar.scores import l2_normalize


def mix_negatives(
    key_vectors: Float[Tensor, "m d"], columns: Int[Tensor, "n k"], count: int, rng_key: RandomKey, slots: Int[Tensor, " n"]
) -> Float[Tensor, "n {count} d"]:
    r"""Compute normalized random mixtures of two hard negatives of each row.

    Each mixture is a convex combination, projected back to the sphere:

    \[ h = \frac{\tilde h}{\lVert \tilde h \rVert}, \qquad \tilde h = \alpha\, n_i + (1 - \alpha)\, n_j, \qquad
       \alpha \sim U(0, 1), \quad i \ne j \]

    Args:
        key_vectors: m vectors of negatives, such as a queue.
        columns: The k hardest of these vectors for each row, as `mine_hardest_negatives` returns them.
        count: Number of mixtures for each row.
        rng_key: Random key.
        slots: Slot of each row.

    Shapes: the result is `(n, count, d)`, for `add_negatives`:

        S = Scores.from_matched(q, k, negatives=queue)
        hard = mine_hardest_negatives(S, 1024)
        S = add_negatives(S, mix_negatives(queue, hard, 512, rng_key("h"), slots))
        S = add_negatives(S, mix_query(q, queue, hard, 128, rng_key("h'"), slots))

    Requirements: no gradient flows into the mixed vectors. A row without negatives gets zeros, which
    `add_negatives` ignores. A row with a single negative gets this negative.

    Relations: unlike mixup, this mixes embeddings and not inputs, and negatives and not labels.

    Reference: Kalantidis et al., Hard Negative Mixing for Contrastive Learning (MoCHi), NeurIPS 2020.
    """
    u = rng_key.uniform(slots, 3, count)
    found = (columns >= 0).sum(1, keepdim=True)
    i = _pick(u[:, 0], found)
    j = (i + 1 + _pick(u[:, 1], found - 1)) % found.clamp_min(1)
    first, second = (_gather_unit_vectors(key_vectors, columns, at) for at in (i, j))
    return l2_normalize(second.lerp(first, u[:, 2, :, None].to(first)))


def mix_query(
    query: Float[Tensor, "n d"],
    key_vectors: Float[Tensor, "m d"],
    columns: Int[Tensor, "n k"],
    count: int,
    rng_key: RandomKey,
    slots: Int[Tensor, " n"],
) -> Float[Tensor, "n {count} d"]:
    r"""Compute normalized random mixtures of each query and its hard negatives.

    The query's share is less than one half:

    \[ h' = \frac{\tilde h'}{\lVert \tilde h' \rVert}, \qquad \tilde h' = \beta\, q + (1 - \beta)\, n_j, \qquad \beta \sim U(0, \tfrac12) \]

    Shapes, requirements, reference: as `mix_negatives`. Both sides are normalized first.
    """
    u = rng_key.uniform(slots, 2, count)
    found = (columns >= 0).sum(1, keepdim=True)
    negative = _gather_unit_vectors(key_vectors, columns, _pick(u[:, 0], found))
    mixed = l2_normalize(negative.lerp(l2_normalize(query.detach()).to(negative)[:, None], u[:, 1, :, None].to(negative) / 2))
    return torch.where(found[:, :, None] > 0, mixed, 0.0)


def _pick(u: Tensor, found: Tensor) -> Tensor:
    """Return integers in [0, found) from uniform numbers, 0 where `found` is 0."""
    return (u.double() * found).long().clamp_min(0)


def _gather_unit_vectors(key_vectors: Tensor, columns: Tensor, at: Tensor) -> Tensor:
    """Gather the unit vectors of the chosen columns of each row.

    The result is `(n, count, d)`, with zeros for column -1.
    """
    if columns.shape[1] == 0:
        return key_vectors.detach().new_zeros(*at.shape, key_vectors.shape[1])
    column = columns.gather(1, at)
    vectors = l2_normalize(key_vectors.detach())[column.clamp_min(0)]
    return torch.where(column[:, :, None] >= 0, vectors, 0.0)

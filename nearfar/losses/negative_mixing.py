"""Mixed negatives: points between hard negatives, and between them and the query, harder than any that exist."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core.random_key import RandomKey
from nearfar.scores import l2_normalize


def mix_negatives(
    key_vectors: Float[Tensor, "m d"], columns: Int[Tensor, "n k"], count: int, rng_key: RandomKey, slots: Int[Tensor, " n"]
) -> Float[Tensor, "n {count} d"]:
    r"""Convex combinations of two of a row's hard negatives, back on the sphere:

    \[ h = \frac{\tilde h}{\lVert \tilde h \rVert}, \qquad \tilde h = \alpha\, n_i + (1 - \alpha)\, n_j, \qquad
       \alpha \sim U(0, 1), \quad i \ne j \]

    Shapes: `columns` are the k hardest of the m vectors for each row (`hardest_negatives`); the result is `(n, count, d)`,
    for `with_negatives`:

        S = matched(q, k, against=queue)
        hard = hardest_negatives(S, 1024)
        S = with_negatives(S, mix_negatives(queue, hard, 512, key("h"), slots))
        S = with_negatives(S, mix_query(q, queue, hard, 128, key("h'"), slots))

    Requirements: no gradient flows into what is mixed. A row without negatives gets zeros, which `with_negatives` takes
    for nobody; one with a single negative gets that.

    Relations: mixing of embeddings, not of inputs as in mixup, and of negatives, not of labels.

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
    r"""Hard negatives drawn towards the query itself, but never past the middle:

    \[ h' = \frac{\tilde h'}{\lVert \tilde h' \rVert}, \qquad \tilde h' = \beta\, q + (1 - \beta)\, n_j, \qquad \beta \sim U(0, \tfrac12) \]

    Shapes, requirements, reference: as `mix_negatives`; both sides are normalised first.
    """
    u = rng_key.uniform(slots, 2, count)
    found = (columns >= 0).sum(1, keepdim=True)
    negative = _gather_unit_vectors(key_vectors, columns, _pick(u[:, 0], found))
    mixed = l2_normalize(negative.lerp(l2_normalize(query.detach()).to(negative)[:, None], u[:, 1, :, None].to(negative) / 2))
    return torch.where(found[:, :, None] > 0, mixed, 0.0)


def _pick(u: Tensor, found: Tensor) -> Tensor:
    """Integers in [0, found) from uniform numbers; 0 where nothing was found."""
    return (u.double() * found).long().clamp_min(0)


def _gather_unit_vectors(key_vectors: Tensor, columns: Tensor, at: Tensor) -> Tensor:
    """The unit vectors `(n, count, d)` in the chosen of each row's columns; zeros for column -1."""
    if columns.shape[1] == 0:
        return key_vectors.detach().new_zeros(*at.shape, key_vectors.shape[1])
    column = columns.gather(1, at)
    vectors = l2_normalize(key_vectors.detach())[column.clamp_min(0)]
    return torch.where(column[:, :, None] >= 0, vectors, 0.0)

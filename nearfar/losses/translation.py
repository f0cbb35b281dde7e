r"""The hinge of translations over tables, with gradients in closed form at the rows that have one.

Once entities have found their places most margins are met: such pairs have no gradient, and cost no more than their distances. Of a
table of millions of rows a step then touches a few hundred; what is returned to the tables are sparse gradients of those.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.losses.window_sampling import at_rows, rows


def translation_rows(
    entity: Float[Tensor, "entities d"],
    relation: Float[Tensor, "relations d"],
    head: Int[Tensor, " n"],
    kind: Int[Tensor, " n"],
    tail: Int[Tensor, " n"],
    other: Int[Tensor, "n k"],
    of_head: Bool[Tensor, "n k"],
    gamma: float,
    p: int,
) -> Float[Tensor, " n"]:
    r"""\(\frac1k \sum_j [\gamma + \lVert h + r - t \rVert_p - \lVert h'_j + r - t'_j \rVert_p]_+\), where (h', t') is (other, t) where
    `of_head`, else (h, other).

    Shapes: n triples by their numbers in the two tables, k corruptions of each, give `(n,)`.

    Relations: `translation_hinge` of the same distances.
    """
    return _Translation.apply(entity, relation, head, kind, tail, other, of_head, gamma, p)  # type: ignore[return-value]


class _Translation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entity, relation, head, kind, tail, other, of_head, gamma, p):
        h, r, t = rows(entity, head), rows(relation, kind), rows(entity, tail)
        true = h + r - t
        # h' + r - t is h + r - t with h exchanged, and h + r - t' is it with t exchanged, whose sign is the other one
        change = rows(entity, other) - torch.where(of_head[:, :, None], h[:, None], t[:, None])
        false = torch.addcmul(true[:, None], change, torch.where(of_head, 1.0, -1.0).to(h.dtype)[:, :, None])
        loss = gamma + length(true, p)[:, None] - length(false, p)
        row, pair = (loss > 0).nonzero().T
        ctx.save_for_backward(true[row], false[row, pair], head[row], kind[row], tail[row], other[row, pair], of_head[row, pair], row)
        ctx.shapes, ctx.p, ctx.k = (entity.shape, relation.shape), p, loss.shape[1]
        return loss.relu().mean(1)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor):
        true, false, head, kind, tail, other, of_head, row = ctx.saved_tensors
        weight = (outputs[0][row] / ctx.k)[:, None]
        pull, push = direction(true, ctx.p) * weight, direction(false, ctx.p) * weight
        both = pull - push
        side = of_head[:, None]
        at_head, at_tail = torch.where(side, pull, both), torch.where(side, both, pull).neg_()
        at_other = torch.where(side, -push, push)
        ids = torch.cat([head, tail, other])
        return at_rows(ids, torch.cat([at_head, at_tail, at_other]), ctx.shapes[0]), at_rows(kind, both, ctx.shapes[1]), *[None] * 7


def length(difference: Float[Tensor, "*n d"], p: int) -> Float[Tensor, "*n"]:
    """The L1 or L2 norm; torch's own is several times slower for L1."""
    return difference.abs().sum(-1) if p == 1 else difference.norm(dim=-1)


def direction(difference: Float[Tensor, "m d"], p: int) -> Float[Tensor, "m d"]:
    """The gradient of the length; zero has none and gives zero."""
    if p == 1:
        return difference.sign()
    return difference / difference.norm(dim=1, keepdim=True).clamp_min(torch.finfo(difference.dtype).tiny)

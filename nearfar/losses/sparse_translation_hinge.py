r"""The hinge of translations over tables, with gradients in closed form at the rows that have one.

Once entities have found their places most margins are met: such pairs have no gradient, and cost no more than their distances. Of a
table of millions of rows a step then touches a few hundred; what is returned to the tables are sparse gradients of those.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.losses.word2vec import build_sparse_gradient, lookup_rows


def sparse_translation_hinge(
    entities: Float[Tensor, "entities d"],
    relations: Float[Tensor, "relations d"],
    head_ids: Int[Tensor, " n"],
    relation_ids: Int[Tensor, " n"],
    tail_ids: Int[Tensor, " n"],
    replacement_ids: Int[Tensor, "n k"],
    replaces_head: Bool[Tensor, "n k"],
    margin: float,
    norm_order: int,
) -> Float[Tensor, " n"]:
    r"""\(\frac1k \sum_j [\gamma + \lVert h + r - t \rVert_p - \lVert h'_j + r - t'_j \rVert_p]_+\), where (h', t') is (other, t) where
    `of_head`, else (h, other).

    Shapes: n triples by their numbers in the two tables, k corruptions of each, give `(n,)`.

    Relations: `translation_hinge` of the same distances.
    """
    return _Translation.apply(entities, relations, head_ids, relation_ids, tail_ids, replacement_ids, replaces_head, margin, norm_order)  # type: ignore[return-value]


class _Translation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entities, relations, head_ids, relation_ids, tail_ids, replacement_ids, replaces_head, margin, norm_order):
        h, r, t = lookup_rows(entities, head_ids), lookup_rows(relations, relation_ids), lookup_rows(entities, tail_ids)
        true = h + r - t
        # h' + r - t is h + r - t with h exchanged, and h + r - t' is it with t exchanged, whose sign is the other one
        change = lookup_rows(entities, replacement_ids) - torch.where(replaces_head[:, :, None], h[:, None], t[:, None])
        false = torch.addcmul(true[:, None], change, torch.where(replaces_head, 1.0, -1.0).to(h.dtype)[:, :, None])
        loss = margin + compute_norm(true, norm_order)[:, None] - compute_norm(false, norm_order)
        row, pair = (loss > 0).nonzero().T
        ctx.save_for_backward(
            true[row],
            false[row, pair],
            head_ids[row],
            relation_ids[row],
            tail_ids[row],
            replacement_ids[row, pair],
            replaces_head[row, pair],
            row,
        )
        ctx.shapes, ctx.p, ctx.k = (entities.shape, relations.shape), norm_order, loss.shape[1]
        return loss.relu().mean(1)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor):
        true, false, head, kind, tail, other, of_head, row = ctx.saved_tensors
        weight = (outputs[0][row] / ctx.k)[:, None]
        pull, push = compute_norm_gradient(true, ctx.p) * weight, compute_norm_gradient(false, ctx.p) * weight
        both = pull - push
        side = of_head[:, None]
        at_head, at_tail = torch.where(side, pull, both), torch.where(side, both, pull).neg_()
        at_other = torch.where(side, -push, push)
        ids = torch.cat([head, tail, other])
        return (
            build_sparse_gradient(ids, torch.cat([at_head, at_tail, at_other]), ctx.shapes[0]),
            build_sparse_gradient(kind, both, ctx.shapes[1]),
            *[None] * 7,
        )


def compute_norm(difference: Float[Tensor, "*n d"], norm_order: int) -> Float[Tensor, "*n"]:
    """The L1 or L2 norm; torch's own is several times slower for L1."""
    return difference.abs().sum(-1) if norm_order == 1 else difference.norm(dim=-1)


def compute_norm_gradient(difference: Float[Tensor, "m d"], norm_order: int) -> Float[Tensor, "m d"]:
    """The gradient of the length; zero has none and gives zero."""
    if norm_order == 1:
        return difference.sign()
    return difference / difference.norm(dim=1, keepdim=True).clamp_min(torch.finfo(difference.dtype).tiny)

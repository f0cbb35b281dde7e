"""Translation hinge over embedding tables, with sparse gradients in closed form.

Once entities are well placed, most margins are met. Such pairs have no gradient and cost no more than their
distances. In a table of millions of rows, a step then changes a few hundred rows. The tables get sparse
gradients of these rows.
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
    r"""Compute the hinge between distances of true and corrupted triples.

    It is \(\frac1k \sum_j [\gamma + \lVert h + r - t \rVert_p - \lVert h'_j + r - t'_j \rVert_p]_+\). Here
    (h', t') is (replacement, t) where `replaces_head` is true, and (h, replacement) elsewhere.

    Args:
        entities: Table of entity vectors.
        relations: Table of relation vectors.
        head_ids: Head of each triple, a row of `entities`.
        relation_ids: Relation of each triple, a row of `relations`.
        tail_ids: Tail of each triple, a row of `entities`.
        replacement_ids: Replacement entities of k corruptions of each triple.
        replaces_head: True where the replacement takes the place of the head, false where it takes the place
            of the tail.
        margin: Margin \(\gamma\).
        norm_order: Order p of the norm, 1 or 2.

    Shapes: n triples with k corruptions of each give `(n,)`.

    Relations: `translation_hinge` of the same distances.
    """
    return _Translation.apply(  # type: ignore[return-value]
        entities, relations, head_ids, relation_ids, tail_ids, replacement_ids, replaces_head, margin, norm_order
    )


class _Translation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entities, relations, head_ids, relation_ids, tail_ids, replacement_ids, replaces_head, margin, norm_order):
        h, r, t = lookup_rows(entities, head_ids), lookup_rows(relations, relation_ids), lookup_rows(entities, tail_ids)
        true = h + r - t
        # h' + r - t is h + r - t plus (h' - h). h + r - t' is h + r - t minus (t' - t).
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
    """Compute the L1 or L2 norm of each vector.

    torch's own L1 norm is several times slower.
    """
    return difference.abs().sum(-1) if norm_order == 1 else difference.norm(dim=-1)


def compute_norm_gradient(difference: Float[Tensor, "m d"], norm_order: int) -> Float[Tensor, "m d"]:
    """Compute the gradient of the norm of each vector; zero vectors get zero."""
    if norm_order == 1:
        return difference.sign()
    return difference / difference.norm(dim=1, keepdim=True).clamp_min(torch.finfo(difference.dtype).tiny)

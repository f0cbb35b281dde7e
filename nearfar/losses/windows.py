r"""Negative sampling over windows of running text, as small matrix products with gradients in closed form.

A table of 100,000 words has a gradient at the few thousand rows of a step and nowhere else: what is returned to the tables are
sparse gradients of those rows. Text is cut into tiles of consecutive centres. The centres of a tile against the places around them
and against the tile's noise is one matrix product, of which weights keep the pairs that are in a window. Noise is shared by a tile: K
words stand for the k that each pair would draw alone, each weighs k/K, so that the expected loss and gradient are those of the papers.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def skip_gram_neg(
    v: Float[Tensor, "words d"],
    u: Float[Tensor, "words d"],
    word: Int[Tensor, "m c"],
    sentence: Int[Tensor, "m c"],
    reach: Int[Tensor, "m t"],
    noise: Int[Tensor, "m k"],
    negatives: float,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    r"""Each centre c predicts each word o of its window W_c; the loss of a tile and its number of pairs:

    \[ \ell = \sum_c \sum_{o \in W_c} \Big( -\log \sigma(u_o^\top v_c)
              - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top v_c) \Big) \]

    Shapes: word and sentence (m, t + 2·window), reach (m, t), noise (m, K), as `similarity.Windows` draws them.

    Relations: the sum of `negative_sampling` over all pairs, where all pairs of a tile share their noise.
    """
    return _SkipGram.apply(v, u, word, sentence, reach, noise, negatives)  # type: ignore[return-value]


def cbow_neg(
    v: Float[Tensor, "words d"],
    u: Float[Tensor, "words d"],
    word: Int[Tensor, "m c"],
    sentence: Int[Tensor, "m c"],
    reach: Int[Tensor, "m t"],
    noise: Int[Tensor, "m k"],
    negatives: float,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    r"""The mean of a window predicts its centre; the loss of a tile and its number of windows that are not empty:

    \[ \ell = \sum_c -\log \sigma(u_c^\top h_c) - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top h_c),
       \qquad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o \]

    Relations: `negative_sampling` of h as the centre and u_c as its context. Shapes as in `skip_gram_neg`.
    """
    return _Cbow.apply(v, u, word, sentence, reach, noise, negatives)  # type: ignore[return-value]


class _SkipGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v, u, word, sentence, reach, noise, negatives):
        pair = in_reach(sentence, reach).to(v.dtype)
        pairs = pair.sum(2, keepdim=True)
        weight = torch.cat([pair, (pairs * (negatives / noise.shape[1])).expand(-1, -1, noise.shape[1])], dim=2)
        centre, candidate = centres(word, reach), torch.cat([word, noise], dim=1)
        v_c, u_o = rows(v, centre), rows(u, candidate)
        sign = u.new_ones(candidate.shape[1])
        sign[: word.shape[1]] = -1
        wrong = (v_c @ u_o.mT).mul_(sign)
        ctx.save_for_backward(v_c, u_o, wrong, weight, sign, centre, candidate)
        ctx.shape = v.shape
        pairs = pairs.sum((1, 2))
        ctx.mark_non_differentiable(pairs)
        return (F.softplus(wrong) * weight).sum((1, 2)), pairs

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor):
        v_c, u_o, wrong, weight, sign, centre, candidate = ctx.saved_tensors
        g = (wrong.sigmoid() * weight).mul_(sign).mul_(outputs[0].view(-1, 1, 1))
        return at_rows(centre, g @ u_o, ctx.shape), at_rows(candidate, g.mT @ v_c, ctx.shape), *[None] * 5


class _Cbow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v, u, word, sentence, reach, noise, negatives):
        pair = in_reach(sentence, reach).to(v.dtype)
        size = pair.sum(2, keepdim=True)
        share = pair / size.clamp_min(1)
        full = (size > 0).to(v.dtype)
        centre = centres(word, reach)
        h, u_c, u_n = share @ rows(v, word), rows(u, centre), rows(u, noise)
        s_pos, s_neg = (h * u_c).sum(2, keepdim=True), h @ u_n.mT
        weight = full * (negatives / noise.shape[1])
        ctx.save_for_backward(h, u_c, u_n, share, full, weight, s_pos, s_neg, word, centre, noise)
        ctx.shape = v.shape
        windows = full.sum((1, 2))
        ctx.mark_non_differentiable(windows)
        return (F.softplus(-s_pos) * full).sum((1, 2)) + (F.softplus(s_neg) * weight).sum((1, 2)), windows

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor):
        h, u_c, u_n, share, full, weight, s_pos, s_neg, word, centre, noise = ctx.saved_tensors
        g = outputs[0].view(-1, 1, 1)
        g_pos, g_neg = (s_pos.sigmoid() - 1) * (full * g), s_neg.sigmoid() * (weight * g)
        dh = torch.baddbmm(g_pos * u_c, g_neg, u_n)
        du = torch.cat([g_pos * h, g_neg.mT @ h], dim=1)
        return at_rows(word, share.mT @ dh, ctx.shape), at_rows(torch.cat([centre, noise], dim=1), du, ctx.shape), *[None] * 5


def centres(word: Int[Tensor, "m c"], reach: Int[Tensor, "m t"]) -> Int[Tensor, "m t"]:
    """The middle of each tile."""
    window = (word.shape[1] - reach.shape[1]) // 2
    return word[:, window : window + reach.shape[1]]


def in_reach(sentence: Int[Tensor, "m c"], reach: Int[Tensor, "m t"]) -> Tensor:
    """Which places are in the window of which centre: (m, t, c), true or false."""
    t, window = reach.shape[1], (sentence.shape[1] - reach.shape[1]) // 2
    at = torch.arange(t + 2 * window, device=reach.device, dtype=reach.dtype)
    distance = (at[window : window + t, None] - at).abs()
    distance = torch.where(distance == 0, 2 * window + 1, distance)  # a word is not in its own window
    return (centres(sentence, reach)[:, :, None] == sentence[:, None]) & (distance <= reach[:, :, None])


def rows(table: Tensor, ids: Tensor) -> Tensor:
    """`table[ids]`, by the faster way."""
    return table.index_select(0, ids.reshape(-1)).view(*ids.shape, -1)


def at_rows(ids: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """A gradient that is zero but for these rows; a row that is named twice has the sum."""
    return torch.sparse_coo_tensor(ids.reshape(1, -1), values.reshape(-1, shape[1]), shape, check_invariants=False)

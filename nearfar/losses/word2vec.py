r"""Negative sampling over windows of running text, as small matrix products with gradients in closed form.

A table of 100,000 words has a gradient at the few thousand rows of a step and nowhere else: what is returned to the tables are
sparse gradients of those rows. Text is cut into tiles of consecutive centres. The centres of a tile against the places around them
and against the tile's noise is one matrix product, of which weights keep the pairs that are in a window; where windows are averaged
instead, their rows are summed straight out of the table. Noise is shared by a tile: K words stand for the k that each pair would
draw alone, each weighs k/K, so that the expected loss and gradient are those of the papers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

RaggedLists = Sequence[Tensor]
"""Lists of different lengths, end to end; and where each begins and the last ends."""
RaggedListsByWord = Sequence[Tensor]
"""Words in ascending order, each once; and for each a list."""
CENTERS_PER_BLOCK = 2048
"""Centres whose vectors stay in a core's cache together."""


def skip_gram_neg(
    input_vectors: Float[Tensor, "words d"],
    output_vectors: Float[Tensor, "words d"],
    word_ids: Int[Tensor, "m c"],
    sentence_ids: Int[Tensor, "m c"],
    window_reach: Int[Tensor, "m t"],
    noise_ids: Int[Tensor, "m k"],
    negatives_per_pair: float,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    r"""Each centre c predicts each word o of its window W_c; the loss of a tile and its number of pairs:

    \[ \ell = \sum_c \sum_{o \in W_c} \Big( -\log \sigma(u_o^\top v_c)
              - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top v_c) \Big) \]

    Shapes: word and sentence (m, t + 2·window), reach (m, t), noise (m, K), as `similarity.Windows` draws them.

    Relations: the sum of `negative_sampling` over all pairs, where all pairs of a tile share their noise.
    """
    return _SkipGram.apply(input_vectors, output_vectors, word_ids, sentence_ids, window_reach, noise_ids, negatives_per_pair)  # type: ignore[return-value]


def cbow_neg(
    input_vectors: Float[Tensor, "words d"],
    output_vectors: Float[Tensor, "words d"],
    word_ids: Int[Tensor, "m t"],
    noise_ids: Int[Tensor, "m k"],
    window_words: RaggedLists,
    centers_by_word: RaggedListsByWord,
    positions_by_word: RaggedListsByWord,
    negatives_per_window: float,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    r"""The mean of a window predicts its centre; the loss of a tile and its number of windows that are not empty:

    \[ \ell = \sum_c -\log \sigma(u_c^\top h_c) - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top h_c),
       \qquad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o \]

    Shapes: word (m, t) and noise (m, K); near: for each of the m·t centres the words of its window. Two more make the gradient
    cheap. seen: for each word the centres in whose windows it is; named: for each where it stands in [word, noise]. All as
    `similarity.Bags` draws them.

    Relations: `negative_sampling` of h as the centre and u_c as its context.
    """
    return _Cbow.apply(
        input_vectors, output_vectors, word_ids, noise_ids, *window_words, *centers_by_word, *positions_by_word, negatives_per_window
    )  # type: ignore[return-value]


class _SkipGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v, u, word, sentence, reach, noise, negatives):
        pair = build_window_mask(sentence, reach).to(v.dtype)
        pairs = pair.sum(2, keepdim=True)
        weight = torch.cat([pair, (pairs * (negatives / noise.shape[1])).expand(-1, -1, noise.shape[1])], dim=2)
        centre, candidate = get_tile_centers(word, reach), torch.cat([word, noise], dim=1)
        v_c, u_o = lookup_rows(v, centre), lookup_rows(u, candidate)
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
        return build_sparse_gradient(centre, g @ u_o, ctx.shape), build_sparse_gradient(candidate, g.mT @ v_c, ctx.shape), *[None] * 5


class _Cbow(torch.autograd.Function):
    """The gradient is made in the forward pass, slab by slab, while what it is made of is in the cache; what follows scales it."""

    @staticmethod
    def forward(ctx: Any, v, u, word, noise, near, begins, seen, within, within_begins, named, at, at_begins, negatives):
        size = begins.diff().view(word.shape)
        share = (size > 0).to(v.dtype) / size.clamp_min(1)
        dh, du = v.new_empty(*word.shape, v.shape[1]), v.new_empty(word.numel() + noise.numel(), v.shape[1])
        du_c, du_n = du[: word.numel()].view(dh.shape), du[word.numel() :].view(*noise.shape, v.shape[1])
        loss = v.new_empty(len(word))
        for part, lists in iterate_tile_blocks((near, begins), *word.shape):
            h, u_c, u_n = sum_listed_rows(v, lists).view(-1, *dh.shape[1:]), lookup_rows(u, word[part]), lookup_rows(u, noise[part])
            loss[part] = _bag_gradient(h, u_c, u_n, share[part], negatives / noise.shape[1], dh[part], du_c[part], du_n[part])
        ctx.save_for_backward(dh, du, seen, within, within_begins, named, at, at_begins)
        ctx.shape, ctx.noise = v.shape, noise.shape[1]
        windows = (size > 0).to(v.dtype).sum(1)
        ctx.mark_non_differentiable(windows)
        return loss, windows

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor):
        dh, du, seen, within, within_begins, named, at, at_begins = ctx.saved_tensors
        of_centre = outputs[0].repeat_interleave(dh.shape[1])
        of_either = torch.cat([of_centre, outputs[0].repeat_interleave(ctx.noise)])
        dv = sum_listed_rows(dh.flatten(0, 1), (within, within_begins), of_centre.index_select(0, within))
        du = sum_listed_rows(du, (at, at_begins), of_either.index_select(0, at))
        return build_sparse_gradient(seen, dv, ctx.shape), build_sparse_gradient(named, du, ctx.shape), *[None] * 11


def _bag_gradient(
    h: Tensor, u_c: Tensor, u_n: Tensor, share: Tensor, noise_weight: float, dh: Tensor, du_c: Tensor, du_n: Tensor
) -> Float[Tensor, " m"]:
    """The loss of some tiles; their gradients are written to the last three. h are sums of windows, and dh the gradient of each of
    their words: to scale scores by 1/|W| (`share`, 0 for an empty window) takes less than to scale vectors."""
    s_pos, s_neg = (h * u_c).sum(2).mul_(share), (h @ u_n.mT).mul_(share[:, :, None])
    g_pos, g_neg = ((s_pos.sigmoid() - 1) * share)[:, :, None], s_neg.sigmoid() * (noise_weight * share)[:, :, None]
    torch.mul(g_pos, u_c, out=dh).baddbmm_(g_neg, u_n)
    torch.mul(g_pos, h, out=du_c)
    torch.bmm(g_neg.mT, h, out=du_n)
    return ((F.softplus(-s_pos) + noise_weight * F.softplus(s_neg).sum(2)) * (share > 0)).sum(1)


def iterate_tile_blocks(lists: RaggedLists, num_tiles: int, tile_size: int) -> Iterator[tuple[slice, RaggedLists]]:
    """Some tiles at a time and their share of the lists; on a GPU, which would wait for its host, all at once."""
    members, begins = lists
    if members.is_cuda:
        yield slice(num_tiles), lists
        return
    step = -(-CENTERS_PER_BLOCK // tile_size)
    for first in range(0, num_tiles, step):
        own = begins[first * tile_size : (first + step) * tile_size + 1]
        yield slice(first, first + step), (members[own[0] : own[-1]], own - own[0])


def get_tile_centers(values: Int[Tensor, "m c"], window_reach: Int[Tensor, "m t"]) -> Int[Tensor, "m t"]:
    """The middle of each tile."""
    window = (values.shape[1] - window_reach.shape[1]) // 2
    return values[:, window : window + window_reach.shape[1]]


def build_window_mask(sentence_ids: Int[Tensor, "m c"], window_reach: Int[Tensor, "m t"]) -> Tensor:
    """Which places are in the window of which centre: (m, t, c), true or false."""
    t, window = window_reach.shape[1], (sentence_ids.shape[1] - window_reach.shape[1]) // 2
    at = torch.arange(t + 2 * window, device=window_reach.device, dtype=window_reach.dtype)
    distance = (at[window : window + t, None] - at).abs()
    distance = torch.where(distance == 0, 2 * window + 1, distance)  # a word is not in its own window
    return (get_tile_centers(sentence_ids, window_reach)[:, :, None] == sentence_ids[:, None]) & (distance <= window_reach[:, :, None])


def lookup_rows(table: Tensor, ids: Tensor) -> Tensor:
    """`table[ids]`, by the faster way."""
    return table.index_select(0, ids.reshape(-1)).view(*ids.shape, table.shape[1])


def sum_listed_rows(table: Float[Tensor, "rows d"], lists: RaggedLists, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n d"]:
    """For each list the (weighted) sum of the rows that it names: several times faster than adding rows to where they belong."""
    members, begins = lists
    return F.embedding_bag(members, table, begins, mode="sum", include_last_offset=True, per_sample_weights=weights)


def build_sparse_gradient(ids: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """A gradient that is zero but for these rows; a row that is named twice has the sum."""
    return torch.sparse_coo_tensor(ids.reshape(1, -1), values.reshape(-1, shape[1]), shape, check_invariants=False)

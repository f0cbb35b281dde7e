"""Negative sampling over windows of running text, with sparse gradients in closed form.

A table of 100,000 words has a gradient only at the few thousand rows of a step. The tables therefore get
sparse gradients of these rows. Text is cut into tiles of consecutive centers. One matrix product compares the
centers of a tile with the places around them and with the tile's noise. Weights keep the pairs that are in a
window. If windows are averaged instead, their rows are summed directly from the table. A tile shares its
noise: K words replace the k words that each pair would draw alone. Each weighs k/K, so the expected loss and
gradient are those of the papers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

RaggedLists = Sequence[Tensor]
"""Concatenated lists of different lengths, and the offsets where each begins and the last one ends."""
RaggedListsByWord = Sequence[Tensor]
"""Unique words in ascending order, and a ragged list for each word."""
CENTERS_PER_BLOCK = 2048
"""Number of centers whose vectors fit into a core's cache together."""


def skip_gram_neg(
    input_vectors: Float[Tensor, "words d"],
    output_vectors: Float[Tensor, "words d"],
    word_ids: Int[Tensor, "m c"],
    sentence_ids: Int[Tensor, "m c"],
    window_reach: Int[Tensor, "m t"],
    noise_ids: Int[Tensor, "m k"],
    negatives_per_pair: float,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    r"""Compute the skip-gram loss with negative sampling for each tile.

    Each center c predicts each word o of its window W_c:

    \[ \ell = \sum_c \sum_{o \in W_c} \Big( -\log \sigma(u_o^\top v_c)
              - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top v_c) \Big) \]

    Args:
        input_vectors: Table of the centers' vectors, v.
        output_vectors: Table of the predicted words' vectors, u.
        word_ids: Words of each tile and of the places around it, `(m, t + 2 window)`.
        sentence_ids: Sentence of each of these places. Windows end with their sentence.
        window_reach: Window size of each of the t centers of a tile.
        noise_ids: K noise words of each tile.
        negatives_per_pair: Expected number of negatives of each pair, k.

    Returns:
        The loss of each tile and its number of pairs, both `(m,)`.

    Shapes: `WordWindows` in `nearfar.similarity.text_windows` draws the batches.

    Relations: the sum of `negative_sampling` over all pairs. All pairs of a tile share their noise.
    """
    return _SkipGram.apply(  # type: ignore[return-value]
        input_vectors, output_vectors, word_ids, sentence_ids, window_reach, noise_ids, negatives_per_pair
    )


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
    r"""Compute the CBOW loss with negative sampling for each tile.

    The mean of a window predicts its center:

    \[ \ell = \sum_c -\log \sigma(u_c^\top h_c) - \frac kK \sum_{j=1}^K \log \sigma(-u_{\tilde w_j}^\top h_c),
       \qquad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o \]

    Args:
        input_vectors: Table of the window words' vectors, v.
        output_vectors: Table of the predicted words' vectors, u.
        word_ids: The t centers of each tile.
        noise_ids: K noise words of each tile.
        window_words: For each of the m t centers, the words of its window.
        centers_by_word: For each word, the centers whose windows contain it. It makes the gradient cheap.
        positions_by_word: For each word, its positions in [word_ids, noise_ids]. It makes the gradient cheap.
        negatives_per_window: Expected number of negatives of each window, k.

    Returns:
        The loss of each tile and its number of windows that are not empty, both `(m,)`.

    Shapes: `WordBags` in `nearfar.similarity.text_windows` draws the batches.

    Relations: `negative_sampling` with h as the center and u_c as its context.
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
    """CBOW loss with its gradient computed in the forward pass.

    The forward pass computes the gradient block by block, while the inputs of a block are in the cache.
    Backward scales it.
    """

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
    """Compute the loss of some tiles and write their gradients to the last three arguments.

    `h` holds sums of windows, and `dh` gets the gradient of each of their words. The scores are scaled by
    1/|W| (`share`, 0 for an empty window), because this costs less than scaling vectors.
    """
    s_pos, s_neg = (h * u_c).sum(2).mul_(share), (h @ u_n.mT).mul_(share[:, :, None])
    g_pos, g_neg = ((s_pos.sigmoid() - 1) * share)[:, :, None], s_neg.sigmoid() * (noise_weight * share)[:, :, None]
    torch.mul(g_pos, u_c, out=dh).baddbmm_(g_neg, u_n)
    torch.mul(g_pos, h, out=du_c)
    torch.bmm(g_neg.mT, h, out=du_n)
    return ((F.softplus(-s_pos) + noise_weight * F.softplus(s_neg).sum(2)) * (share > 0)).sum(1)


def iterate_tile_blocks(lists: RaggedLists, num_tiles: int, tile_size: int) -> Iterator[tuple[slice, RaggedLists]]:
    """Yield blocks of tiles with their part of the lists.

    On a GPU all tiles come at once, because the GPU would otherwise wait for the host.
    """
    members, begins = lists
    if members.is_cuda:
        yield slice(num_tiles), lists
        return
    step = -(-CENTERS_PER_BLOCK // tile_size)
    for first in range(0, num_tiles, step):
        own = begins[first * tile_size : (first + step) * tile_size + 1]
        yield slice(first, first + step), (members[own[0] : own[-1]], own - own[0])


def get_tile_centers(values: Int[Tensor, "m c"], window_reach: Int[Tensor, "m t"]) -> Int[Tensor, "m t"]:
    """Return the values at the centers of each tile."""
    window = (values.shape[1] - window_reach.shape[1]) // 2
    return values[:, window : window + window_reach.shape[1]]


def build_window_mask(sentence_ids: Int[Tensor, "m c"], window_reach: Int[Tensor, "m t"]) -> Tensor:
    """Build the mask `(m, t, c)` of the places in the window of each center."""
    t, window = window_reach.shape[1], (sentence_ids.shape[1] - window_reach.shape[1]) // 2
    at = torch.arange(t + 2 * window, device=window_reach.device, dtype=window_reach.dtype)
    distance = (at[window : window + t, None] - at).abs()
    distance = torch.where(distance == 0, 2 * window + 1, distance)  # a word is not in its own window
    return (get_tile_centers(sentence_ids, window_reach)[:, :, None] == sentence_ids[:, None]) & (distance <= window_reach[:, :, None])


def lookup_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Look up `table[ids]` with `index_select`, which is faster."""
    return table.index_select(0, ids.reshape(-1)).view(*ids.shape, table.shape[1])


def sum_listed_rows(table: Float[Tensor, "rows d"], lists: RaggedLists, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n d"]:
    """Sum the (weighted) rows that each list names.

    This is several times faster than adding each row to its target.
    """
    members, begins = lists
    return F.embedding_bag(members, table, begins, mode="sum", include_last_offset=True, per_sample_weights=weights)


def build_sparse_gradient(ids: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """Build a gradient that is zero except in the given rows.

    Values of repeated rows are added.
    """
    return torch.sparse_coo_tensor(ids.reshape(1, -1), values.reshape(-1, shape[1]), shape, check_invariants=False)

"""Similarity of words that are close in running text, with noise from word frequencies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, Views

CENTERS_PER_GROUP = 32
"""Default number of centers per group."""


@dataclass(frozen=True)
class WordWindows(Similarity):
    r"""Rows are blocks of `words_per_row` consecutive positions of a `Corpus`.

    Every kept position is the center of a window. Frequent words are subsampled first, so that windows reach
    further: a word with share f of the text is kept with probability \(\sqrt{t/f} + t/f\), where t is
    `subsample_threshold`. The reach of a window to both sides is drawn for each center, uniformly from 1 to
    `window`, so close words count more than distant ones. A window ends where its sentence or its block ends.

    The kept positions of a block are split into groups of c = `centers_per_group` centers. The last group is
    padded. Noise words are drawn for each group, in proportion to counts^`noise_exponent`, and shared by its
    centers.

    The output for m groups of n rows is {"word": (m, c + 2·window) int64, "sentence": the same shape, int32,
    -1 for padding, "reach": (m, c) int32, 0 for padding, "noise": (m, shared_negatives) int64, "row": (m,)
    int64, the row of each group}. The centers of a group are its middle c positions.
    """

    prefetches = True

    words_per_row: int = 256
    window: int = 5
    subsample_threshold: float = 1e-3
    """Share of the text above which words are subsampled. 0: no subsampling."""
    shared_negatives: int = 32
    noise_exponent: float = 0.75
    centers_per_group: int = CENTERS_PER_GROUP
    """Centers whose neighbors and noise are compared in one matrix product."""

    def count(self, data: Any) -> int:
        return -(-len(data.tokens) // self.words_per_row)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        word, sentence, reach, noise, row = self._read_groups(data, rows, rng_key)
        nothing = word.size  # index of the padding value
        place = np.arange(len(row))[:, None] * self.centers_per_group + np.arange(-self.window, self.centers_per_group + self.window)
        tiles = np.bincount(row, minlength=len(rows))
        last = (np.cumsum(tiles) * self.centers_per_group)[row][:, None]
        place = np.where((place >= last - (tiles * self.centers_per_group)[row][:, None]) & (place < last), place, nothing)
        found = {
            "word": np.append(word, 0)[place],
            "sentence": np.append(sentence, np.int32(-1))[place],
            "reach": reach,
            "noise": noise,
            "row": row,
        }
        return {name: torch.from_numpy(x) for name, x in found.items()}

    def _read_groups(self, data: Any, rows: Rows, rng_key: RandomKey) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read the kept words of the blocks in groups.

        Returns:
            Words, sentence numbers and reaches (m, c), noise (m, shared_negatives), and the row of each group
            (m,).
        """
        word, sentence, reach, row = self._read_kept_words(data, rows, rng_key)
        left = np.bincount(row, minlength=len(rows))
        tiles = -(-left // self.centers_per_group)
        first = np.cumsum(tiles) - tiles
        at = np.arange(len(row)) + (first * self.centers_per_group - (np.cumsum(left) - left))[row]
        of_row = np.repeat(np.arange(len(rows)), tiles)
        shape = (len(of_row), self.centers_per_group)
        words, sentences, reaches = np.zeros(shape, np.int64), np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
        words.reshape(-1)[at], sentences.reshape(-1)[at], reaches.reshape(-1)[at] = word, sentence, reach
        drawn = rng_key("noise").uniform(rows.slots, -(-self.words_per_row // self.centers_per_group), self.shared_negatives)[
            of_row, np.arange(len(of_row)) - first[of_row]
        ]
        return words, sentences, reaches, draw_from_cdf(compute_noise_cdf(data, self.noise_exponent), drawn), of_row

    def _read_kept_words(self, data: Any, rows: Rows, rng_key: RandomKey) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read the kept words of all blocks, concatenated.

        Return words, sentence numbers, reaches and rows.
        """
        place = rows.ids[:, None] * self.words_per_row + np.arange(self.words_per_row)
        inside = place < len(data.tokens)
        place = np.minimum(place, len(data.tokens) - 1)
        word, sentence = data.tokens[place], np.cumsum(data.is_sentence_start[place], axis=1, dtype=np.int32)
        kept = inside & (
            rng_key("keep").uniform(rows.slots, self.words_per_row) < compute_keep_probabilities(data, self.subsample_threshold)[word]
        )
        reach = 1 + rng_key("reach").integers(rows.slots, self.window, self.words_per_row)
        return word[kept], sentence[kept], reach[kept], np.nonzero(kept)[0]

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)


@dataclass(frozen=True)
class WordBags(WordWindows):
    """Same windows and noise, for methods that use each window as a whole.

    The output holds lists of window words instead of all pairs of a group. For m groups of n rows it is
    {"word": (m, c) int64, "noise": (m, shared_negatives) int64, "row": (m,) int64} and these lists:

        "near"     for each of the m·c centers, the words in its window
        "seen"     distinct words, and for each the centers whose windows contain it
        "named"    distinct words, and for each its positions in [word, noise]

    Lists are concatenated, followed by the offset of each list and the end of the last.
    """

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        word, sentence, reach, noise, row = self._read_groups(data, rows, rng_key)
        text = sentence + row[:, None] * (self.words_per_row + 2)  # sentence numbers differ between rows
        near, within = mark_windows(text.reshape(-1), reach.reshape(-1), self.window)
        either = np.concatenate([word, noise], axis=None)
        order = stable_argsort(either)
        own = order[order < word.size]
        named, first = find_equal_runs(either[order])
        seen, first_seen = find_equal_runs(either[own])
        context, begins = list_marked_positions(near, np.arange(word.size))
        centre, centre_begins = list_marked_positions(within, own)
        found = {
            "word": word,
            "noise": noise,
            "row": row,
            "near": (either[context], begins),
            "seen": (seen, centre, centre_begins[first_seen]),
            "named": (named, order, first),
        }
        return {name: tuple(map(torch.from_numpy, x)) if isinstance(x, tuple) else torch.from_numpy(x) for name, x in found.items()}


def stable_argsort(values: np.ndarray) -> np.ndarray:
    """Sort numbers below 2^31 stably and return their positions.

    Numbers and positions are sorted as one integer, which is faster than `argsort`.
    """
    return np.sort(values << 32 | np.arange(len(values))) & 0xFFFFFFFF


def find_equal_runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct values of an ascending array.

    Returns:
        The distinct values, and the offset of each followed by the end of the last.
    """
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return values[begins], np.append(begins, len(values))


def mark_windows(sentence: np.ndarray, reach: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Mark which positions share a window.

    Returns:
        Two boolean bands of shape `(2 * window + 1, positions)`. The first axis is the offset from -window to
        window. The first band marks the positions in the window of each position. The second band marks
        the positions whose windows contain it.
    """
    near, within = np.zeros((2, 2 * window + 1, len(reach)), dtype=bool)
    for far in range(1, window + 1):
        same = sentence[far:] == sentence[:-far]
        near[window + far, :-far] = within[window - far, far:] = same & (reach[:-far] >= far)
        near[window - far, far:] = within[window + far, :-far] = same & (reach[far:] >= far)
    return near, within


def list_marked_positions(bands: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the positions that a band marks for each position.

    Args:
        bands: `(2 * window + 1, positions)` boolean band (see `mark_windows`).
        order: positions, in the order of the lists.

    Returns:
        The concatenated lists, and the offset of each list followed by the end of the last.
    """
    width = len(bands)
    marked = np.flatnonzero(np.ascontiguousarray(bands.T).take(order, axis=0))
    row = marked // width
    marked += (order - np.arange(len(order)) * width - width // 2)[row]
    return marked, np.append(0, np.cumsum(bands.sum(0, dtype=np.int32)[order], dtype=np.int64))


def sum_groups_per_row(group_values: Tensor, views: Views) -> Tensor:
    """Sum the values of the groups of each row."""
    return group_values.new_zeros(len(views["id"])).index_add(0, views["row"], group_values)


@functools.lru_cache(maxsize=2)
def compute_keep_probabilities(data: Any, threshold: float) -> Float32[np.ndarray, " words"]:
    """Compute the probability of each word that an occurrence is kept."""
    if not threshold:
        return np.ones(len(data.counts), dtype=np.float32)
    ratio = threshold * data.counts.sum() / data.counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)


@functools.lru_cache(maxsize=2)
def compute_noise_cdf(data: Any, exponent: float) -> Float32[np.ndarray, " words"]:
    """Compute the cumulative noise distribution over words."""
    weights = data.counts.astype(np.float64) ** exponent
    return (np.cumsum(weights) / weights.sum()).astype(np.float32)


def draw_from_cdf(cdf: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw positions by inverting a cumulative distribution.

    Args:
        cdf: `(k,)` cumulative probabilities.
        uniform: uniform numbers in [0, 1).
    """
    return np.minimum(np.searchsorted(cdf, uniform, side="right"), len(cdf) - 1)

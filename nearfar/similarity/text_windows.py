"""Words that stand near each other are alike: windows over running text, and noise from the words' own frequencies."""

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
"""Centres of a tile, unless told otherwise."""


@dataclass(frozen=True)
class WordWindows(Similarity):
    r"""Rows are blocks of `block` consecutive places of a `Corpus`; every place that is kept is the centre of a window.

    Frequent words are thinned out first, so that windows reach further across them: a word of share f is kept with probability
    \(\sqrt{t/f} + t/f\). A window then reaches to both sides by a number of words that is drawn anew for each centre, uniformly
    from 1 to `window`: near words count more than distant ones. It ends where its sentence or its block does.

    What is left of a block is cut into tiles of t centres, the last of them filled up. Noise is drawn for each tile, in
    proportion to counts^`power`, and shared by its centres.

    Gives, for m tiles of n rows, {"word": (m, t + 2·window) int64, "sentence": the same shape, int32, -1 where there is nothing,
    "reach": (m, t) int32, 0 where there is nothing, "noise": (m, noise) int64, "row": (m,) int64, which row a tile is of}; the
    centres of a tile are its middle t places.
    """

    prefetches = True

    words_per_row: int = 256
    window: int = 5
    subsample_threshold: float = 1e-3
    """The share t from which on words are thinned out; 0: none is."""
    shared_negatives: int = 32
    noise_exponent: float = 0.75
    centers_per_group: int = CENTERS_PER_GROUP
    """Centres (t) that are compared with the places around them, and with their noise, in one matrix product."""

    def count(self, data: Any) -> int:
        return -(-len(data.tokens) // self.words_per_row)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        word, sentence, reach, noise, row = self._read_groups(data, rows, rng_key)
        nothing = word.size  # the place of whatever lies outside
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
        """What is left of the blocks in tiles: words, numbers of sentences and reaches (m, t), noise (m, noise), and the row of each."""
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
        """What is left of the blocks, end to end: words, numbers of sentences, reaches, and the row of each."""
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
    """The same windows and noise, for who takes each window as a whole: lists of its words instead of all pairs of a tile.

    Gives, for m tiles of n rows, {"word": (m, t) int64, "noise": (m, noise) int64, "row": (m,) int64, "near": for each of the m·t
    centres a list of the words in its window, "seen": words, each once, and for each a list of the centres in whose windows it is,
    "named": words, each once, and for each a list of where it stands in [word, noise]}. Lists stand end to end, followed by where
    each begins and the last ends.
    """

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        word, sentence, reach, noise, row = self._read_groups(data, rows, rng_key)
        text = sentence + row[:, None] * (self.words_per_row + 2)  # no sentence of one row is one of another
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
    """`argsort` of numbers below 2^31, the first of equal ones first: numbers and places sorted as one, which is faster."""
    return np.sort(values << 32 | np.arange(len(values))) & 0xFFFFFFFF


def find_equal_runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of ascending values the different ones, and where each begins and the last ends."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return values[begins], np.append(begins, len(values))


def mark_windows(sentence: np.ndarray, reach: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Bands (offset from -window to window, places): which places are in the window of each, and in whose windows it is."""
    near, within = np.zeros((2, 2 * window + 1, len(reach)), dtype=bool)
    for far in range(1, window + 1):
        same = sentence[far:] == sentence[:-far]
        near[window + far, :-far] = within[window - far, far:] = same & (reach[:-far] >= far)
        near[window - far, far:] = within[window + far, :-far] = same & (reach[far:] >= far)
    return near, within


def list_marked_positions(bands: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places that a band marks for each place, in this order of places; and where each list begins and the last ends."""
    width = len(bands)
    marked = np.flatnonzero(np.ascontiguousarray(bands.T).take(order, axis=0))
    row = marked // width
    marked += (order - np.arange(len(order)) * width - width // 2)[row]
    return marked, np.append(0, np.cumsum(bands.sum(0, dtype=np.int32)[order], dtype=np.int64))


def sum_groups_per_row(group_values: Tensor, views: Views) -> Tensor:
    """Sums over the tiles of each row."""
    return group_values.new_zeros(len(views["id"])).index_add(0, views["row"], group_values)


@functools.lru_cache(maxsize=2)
def compute_keep_probabilities(data: Any, threshold: float) -> Float32[np.ndarray, " words"]:
    """For each word the probability that an occurrence is kept."""
    if not threshold:
        return np.ones(len(data.counts), dtype=np.float32)
    ratio = threshold * data.counts.sum() / data.counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)


@functools.lru_cache(maxsize=2)
def compute_noise_cdf(data: Any, exponent: float) -> Float32[np.ndarray, " words"]:
    """For each word its share of the noise and of all words before it."""
    weights = data.counts.astype(np.float64) ** exponent
    return (np.cumsum(weights) / weights.sum()).astype(np.float32)


def draw_from_cdf(cdf: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Positions drawn in proportion to the steps of `cumulated`, by inverting it."""
    return np.minimum(np.searchsorted(cdf, uniform, side="right"), len(cdf) - 1)

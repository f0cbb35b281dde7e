"""Words that stand near each other are alike: windows over running text, and noise from the words' own frequencies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from nearfar.core import Key, Raw, Rows, Similarity, Views

TILE = 32
"""Centres of a tile, unless told otherwise."""


@dataclass(frozen=True)
class Windows(Similarity):
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

    block: int = 256
    window: int = 5
    subsample: float = 1e-3
    """The share t from which on words are thinned out; 0: none is."""
    noise: int = 32
    power: float = 0.75
    tile: int = TILE
    """Centres (t) that are compared with the places around them, and with their noise, in one matrix product."""

    def count(self, data: Any) -> int:
        return -(-len(data.tokens) // self.block)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        word, sentence, reach, row = self._kept(data, rows, key)
        left = np.bincount(row, minlength=len(rows))
        tiles = -(-left // self.tile)
        first = np.cumsum(tiles) - tiles
        at = first[row] * self.tile + np.arange(len(row)) - (np.cumsum(left) - left)[row]
        of_row = np.repeat(np.arange(len(rows)), tiles)
        tile_in_row = np.arange(len(of_row)) - first[of_row]
        nothing = len(of_row) * self.tile  # the place of whatever lies outside
        words, sentences, reaches = np.zeros(nothing + 1, np.int64), np.full(nothing + 1, -1, np.int32), np.zeros(nothing, np.int32)
        words[at], sentences[at], reaches[at] = word, sentence, reach
        inner = tile_in_row[:, None] * self.tile + np.arange(-self.window, self.tile + self.window)
        place = np.where((inner >= 0) & (inner < tiles[of_row][:, None] * self.tile), inner + first[of_row][:, None] * self.tile, nothing)
        drawn = key("noise").uniform(rows.slots, -(-self.block // self.tile), self.noise)[of_row, tile_in_row]
        found = {
            "word": words[place],
            "sentence": sentences[place],
            "reach": reaches.reshape(-1, self.tile),
            "noise": draw(noise_shares(data, self.power), drawn),
            "row": of_row,
        }
        return {name: torch.from_numpy(x) for name, x in found.items()}

    def _kept(self, data: Any, rows: Rows, key: Key) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What is left of the blocks, end to end: words, numbers of sentences, reaches, and the row of each."""
        place = rows.ids[:, None] * self.block + np.arange(self.block)
        inside = place < len(data.tokens)
        place = np.minimum(place, len(data.tokens) - 1)
        word, sentence = data.tokens[place], np.cumsum(data.begins[place], axis=1, dtype=np.int32)
        kept = inside & (key("keep").uniform(rows.slots, self.block) < keep_shares(data, self.subsample)[word])
        reach = 1 + key("reach").integers(rows.slots, self.window, self.block)
        return word[kept], sentence[kept], reach[kept], np.nonzero(kept)[0]

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return dict(raw)


def per_row(of_tiles: Tensor, x: Views) -> Tensor:
    """Sums over the tiles of each row."""
    return of_tiles.new_zeros(len(x["id"])).index_add(0, x["row"], of_tiles)


@functools.lru_cache(maxsize=2)
def keep_shares(data: Any, subsample: float) -> Float32[np.ndarray, " words"]:
    """For each word the probability that an occurrence is kept."""
    if not subsample:
        return np.ones(len(data.counts), dtype=np.float32)
    ratio = subsample * data.counts.sum() / data.counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)


@functools.lru_cache(maxsize=2)
def noise_shares(data: Any, power: float) -> Float32[np.ndarray, " words"]:
    """For each word its share of the noise and of all words before it."""
    weights = data.counts.astype(np.float64) ** power
    return (np.cumsum(weights) / weights.sum()).astype(np.float32)


def draw(cumulated: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Positions drawn in proportion to the steps of `cumulated`, by inverting it."""
    return np.minimum(np.searchsorted(cumulated, uniform, side="right"), len(cumulated) - 1)

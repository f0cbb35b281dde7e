"""Running text as word numbers, with the positions where sentences begin.

Each line of a text file is a sentence, except empty lines and titles ('# …'), as in a file of articles

    # Title of an article
    Its first sentence.
    Its second sentence.

    # Title of the next one

A word is a run of letters and digits of any script, in lower case. An apostrophe between two of them belongs
to the word ("don't"). Punctuation, underscores and symbols separate words and are dropped.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64

from nearfar.core.errors import UsageError
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.named_samples import VOCABULARY_WORD_PATTERN, NamedSamples

MIN_COUNT = 5
"""Smallest count of a word that gets a vector.

Rarer words occur too seldom to learn from.
"""


def split_words(line: str) -> list[str]:
    """Split a line into words in lower case."""
    return VOCABULARY_WORD_PATTERN.findall(line.lower())


@dataclass(frozen=True, eq=False)
class Corpus(NamedSamples):
    """Text of known words.

    The samples are the words, most frequent first. `len`, `read` and `name` refer to words, which a word
    method represents. Training draws positions of the text (`tokens` and `offsets`).

    Rare words are removed from the text, so their neighbors become adjacent.
    """

    words: tuple[str, ...]
    counts: Int64[np.ndarray, " words"]
    """Number of occurrences of each word."""
    tokens: Int32[np.ndarray, " tokens"]
    """Text as the index in `words` of each word."""
    offsets: Int64[np.ndarray, " sentences_and_one"]
    """Offsets of sentences. Sentence i is `tokens[offsets[i] : offsets[i + 1]]`."""
    source_word_count: int = 0
    """Number of words of the source, including rare words."""
    source: str = ""
    """Source that the user requested, as text."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.words

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """Return the index of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def is_sentence_start(self) -> Bool[np.ndarray, " tokens"]:
        """Return flags that are True where a sentence begins.

        The flags take one byte per position and replace a search in `offsets`.
        """
        flags = np.zeros(len(self.tokens), dtype=bool)
        flags[self.offsets[:-1]] = True
        return flags

    def iterate_sentences(self) -> Iterator[list[str]]:
        """Yield sentences as lists of words.

        Other programs can then train on the same text.
        """
        for start, stop in itertools.pairwise(self.offsets):
            yield [self.words[i] for i in self.tokens[start:stop]]

    @cached_property
    def fingerprint(self) -> str:
        return hash_bytes("\n".join(self.words).encode(), self.tokens.tobytes(), self.offsets.tobytes())

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "words": len(self), "tokens": len(self.tokens)}


def build_corpus(sentences: Iterable[Sequence[str]], min_count: int = MIN_COUNT, source: str = "sentences") -> Corpus:
    """Build a corpus from sentences that are already split into words.

    Words with equal counts are in alphabetical order.

    Args:
        sentences: words of each sentence.
        min_count: smallest count of a word that is kept.
        source: name of the source in messages.

    Raises:
        UsageError: `min_count` is below 1, or fewer than two words are kept.
    """
    if min_count < 1:
        raise UsageError(f"--min-count must be at least 1, got {min_count}")
    found: dict[str, int] = {}
    flat, lengths = array("i"), array("i")  # 4 bytes per word; lists of strings take about 60
    for sentence in sentences:
        flat.extend([found.setdefault(word, len(found)) for word in sentence])
        lengths.append(len(sentence))
    every = np.frombuffer(flat, dtype=np.int32) if flat else np.zeros(0, dtype=np.int32)
    counts = np.bincount(every, minlength=len(found))
    names = list(found)
    chosen = sorted((i for i in range(len(names)) if counts[i] >= min_count), key=lambda i: (-counts[i], names[i]))
    if len(chosen) < 2:
        raise UsageError(f"{source} has {len(chosen)} words that occur {min_count} times or more; at least 2 are needed (--min-count)")
    position = np.full(len(names), -1, dtype=np.int32)
    position[chosen] = np.arange(len(chosen))
    return _drop_rare_words(
        position[every], np.frombuffer(lengths, dtype=np.int32), tuple(names[i] for i in chosen), counts[chosen].astype(np.int64), source
    )


def _drop_rare_words(text: np.ndarray, lengths: np.ndarray, words: tuple[str, ...], counts: np.ndarray, source: str) -> Corpus:
    """Remove words outside the vocabulary (-1) and sentences that become empty."""
    known = text >= 0
    before = np.concatenate([[0], np.cumsum(known)])
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.unique(np.concatenate([[0], before[ends]]))
    return Corpus(words, counts, text[known], offsets.astype(np.int64), len(text), source)

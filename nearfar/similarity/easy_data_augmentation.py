"""Easy data augmentation (EDA): two views of a sentence by four small edits of its words.

    replace   n words by a synonym (no stop words)
    insert    a synonym of a random word at a random place, n times
    swap      two random words, n times
    delete    each word with probability alpha

with n = max(1, alpha · length). Each view draws one of the four edits.

Reference: Wei & Zou, "EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification
Tasks", EMNLP 2019, arXiv:1901.11196.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views

Synonyms = Mapping[str, tuple[str, ...]]
"""Synonyms of each word."""


@dataclass
class UniformDraws:
    """Source of uniform random numbers for one slot.

    Each call returns the next numbers.
    """

    rng_key: RandomKey
    slot: int
    num_calls: int = field(default=0)

    def __call__(self, count: int) -> np.ndarray:
        self.num_calls += 1
        return self.rng_key(self.num_calls).uniform(np.array([self.slot]), count)[0]

    def draw_permutation(self, count: int) -> list[int]:
        """Draw a permutation of the numbers below `count`."""
        return np.argsort(self(count), kind="stable").tolist()

    def draw_integer(self, bound: int) -> int:
        """Draw an integer in [0, bound)."""
        return int(self(1)[0] * bound)


def replace_words(words: list[str], count: int, draw: UniformDraws, synonyms: Synonyms) -> list[str]:
    """Replace `count` different words by synonyms.

    A replaced word changes at all its occurrences. Only words that have a synonym and are not stop words are
    replaced.
    """
    # imported here because the import takes a second and nothing else needs it
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    known = [w for w in dict.fromkeys(words) if w in synonyms and w not in ENGLISH_STOP_WORDS]
    chosen = {known[i]: synonyms[known[i]] for i in draw.draw_permutation(len(known))[:count]} if known else {}
    new = {word: others[draw.draw_integer(len(others))] for word, others in chosen.items()}
    return [part for word in words for part in new.get(word, word).split()]


def insert_synonyms(words: list[str], count: int, draw: UniformDraws, synonyms: Synonyms) -> list[str]:
    """Insert a synonym of a random word at a random place, `count` times."""
    words = list(words)
    for _ in range(count):
        known = [w for w in words if w in synonyms]
        if not known:
            break
        others = synonyms[known[draw.draw_integer(len(known))]]
        words.insert(draw.draw_integer(len(words) + 1), others[draw.draw_integer(len(others))])
    return words


def swap_words(words: list[str], count: int, draw: UniformDraws, synonyms: Synonyms) -> list[str]:
    """Swap two random words, `count` times."""
    words = list(words)
    for _ in range(count if len(words) > 1 else 0):
        i, j = draw.draw_permutation(len(words))[:2]
        words[i], words[j] = words[j], words[i]
    return words


def delete_words(words: list[str], prob: float, draw: UniformDraws, synonyms: Synonyms) -> list[str]:
    """Delete each word with probability `prob`. At least one word remains."""
    kept = [word for word, u in zip(words, draw(len(words)), strict=True) if u >= prob]
    return kept or [words[draw.draw_integer(len(words))]]


EDITS: dict[str, Callable[..., list[str]]] = {
    "replace": replace_words,
    "insert": insert_synonyms,
    "swap": swap_words,
    "delete": delete_words,
}
"""Edit functions by name."""


def edit_sentence(text: str, edit_name: str, changed_share: float, draw: UniformDraws, synonyms: Synonyms) -> str:
    """Apply one of the four edits to the sentence in lower case.

    Args:
        text: sentence.
        edit_name: key of `EDITS`.
        changed_share: share of the words to change (alpha).
        draw: source of random numbers.
        synonyms: synonyms of each word.
    """
    words = text.lower().split()
    if not words:
        return text
    amount = changed_share if edit_name == "delete" else max(1, int(changed_share * len(words)))
    return " ".join(EDITS[edit_name](words, amount, draw, synonyms))


@dataclass(frozen=True, eq=False)
class EasyDataAugmentation(Similarity):
    """Two views of each sentence, each after one edit.

    The views are {"v0": (n, t), "v1": (n, t)}. The edits work on strings, on the host.
    """

    synonyms: Synonyms
    changed_share: float = 0.1
    edits: tuple[str, ...] = tuple(EDITS)

    def __post_init__(self):
        if unknown := set(self.edits) - set(EDITS):
            raise UsageError(f"EDA: unknown edit {min(unknown)!r}: use {', '.join(EDITS)}")

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        texts = data.get_strings(rows.ids)
        ragged = []
        for v in (0, 1):
            draws = [UniformDraws(rng_key("eda", v), int(slot)) for slot in rows.slots]
            edited = [
                edit_sentence(text, self.edits[d.draw_integer(len(self.edits))], self.changed_share, d, self.synonyms)
                for text, d in zip(texts, draws, strict=True)
            ]
            ragged.append(data.tokenizer.encode(edited, data.tokens.max_length))
        place = np.arange(len(rows))
        width = max(view.compute_max_length(place) for view in ragged)
        return torch.stack([view.pad_rows(place, data.tokenizer.special_ids["pad"], width) for view in ragged])

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return {"v0": raw[0], "v1": raw[1]}

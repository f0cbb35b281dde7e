"""Datasets whose samples have a name and a number.

A run stores the names as a tokenizer of whole words. Users select samples by name.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from nearfar.core.errors import UsageError, suggest_similar_names
from nearfar.data.common.dataset import Ids, as_index_array
from nearfar.data.common.tokenizer import Tokenizer

UNKNOWN_TOKEN = "[UNK]"
"""Vocabulary entry for everything unknown. It cannot be a word, because words have no brackets."""
VOCABULARY_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
MAX_NAMES_FOR_SUGGESTIONS = 20_000
"""Largest number of names among which similar names are searched.

A search among more names would take seconds.
"""
NamedSamplesT = TypeVar("NamedSamplesT", bound="NamedSamples")


class NamedSamples(ABC):
    """Dataset of named samples: words of a text, nodes of a graph, or entities of triples.

    `len`, `read` and `name` refer to these samples. Training does not draw from them, but from other data.
    The samples have no classes.
    """

    labels: ClassVar[None] = None
    classes: ClassVar[tuple[str, ...]] = ()
    skipped: tuple[str, ...] = ()
    """Parts of the source that could not be read and were left out."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names in the order of their numbers."""

    def __len__(self) -> int:
        return len(self.names)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        """Return the numbers of these samples, as an embedding table takes them."""
        return torch.as_tensor(as_index_array(ids), dtype=torch.int64)

    def name(self, i: int) -> str:
        """Return the name of sample i."""
        return self.names[i]

    def drop_labels(self: NamedSamplesT) -> NamedSamplesT:
        """Return this dataset, which has no labels."""
        return self

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the names as a tokenizer, the form in which a run stores them."""
        return build_word_tokenizer(self.names)


@dataclass(frozen=True, eq=False)
class VocabularySubset:
    """Selected words of a vocabulary, with the interface of an image dataset."""

    names: tuple[str, ...]
    ids: Int64[np.ndarray, " n"]
    """Positions of the words in the vocabulary."""
    labels: None = None
    classes: tuple[str, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        """Return the vocabulary positions of these words, shape (n,)."""
        return torch.from_numpy(self.ids[as_index_array(ids)])

    def name(self, i: int) -> str:
        """Return word i."""
        return self.names[i]


def build_word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """Build a tokenizer of whole words from a vocabulary.

    The id of a word is its position. One more id stands for all other words.
    """
    unknown = len(words)
    model = {
        "type": "WordLevel",
        "vocab": {**{word: i for i, word in enumerate(words)}, UNKNOWN_TOKEN: unknown},
        "unk_token": UNKNOWN_TOKEN,
    }
    split = {"type": "Split", "pattern": {"Regex": VOCABULARY_WORD_PATTERN.pattern}, "behavior": "Removed", "invert": True}
    parts = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": split, "post_processor": None, "decoder": None, "model": model}
    definition = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], **parts}
    return Tokenizer(json.dumps(definition), {"pad": unknown, "unk": unknown})


@lru_cache(maxsize=4)
def get_vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the words of a vocabulary with their positions, in order."""
    vocabulary = json.loads(tokenizer.definition)["model"]["vocab"]
    return {word: i for word, i in vocabulary.items() if word != UNKNOWN_TOKEN}


def check_names(names: list[str]) -> list[str]:
    """Return the names unchanged.

    Raises:
        UsageError: A name equals `UNKNOWN_TOKEN`, which stands for everything unknown.
    """
    if UNKNOWN_TOKEN in names:
        raise UsageError(f"the name {UNKNOWN_TOKEN!r} is reserved for unknown names: give that entity another name")
    return names


def select_names(wanted: Any, tokenizer: Tokenizer, sample_noun: str) -> VocabularySubset:
    """Select samples by name.

    Args:
        wanted: One name or a list of names.
        tokenizer: Tokenizer of the run, with its vocabulary.
        sample_noun: Noun for a sample in error messages.

    Raises:
        UsageError: A name is not in the vocabulary.
    """
    number = get_vocabulary(tokenizer)
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in number:
            close = suggest_similar_names(str(name), number) if len(number) <= MAX_NAMES_FOR_SUGGESTIONS else ""
            raise UsageError(f"unknown {sample_noun} {name!r}: this run has {len(number):,}.{close}")
    return VocabularySubset(tuple(names), np.array([number[name] for name in names], dtype=np.int64), source=f"{len(names)} names")


def select_all_names(tokenizer: Tokenizer) -> VocabularySubset:
    """Select all names of a run, in order."""
    number = get_vocabulary(tokenizer)
    return VocabularySubset(tuple(number), np.arange(len(number)), source=f"{len(number)} names")

"""Things that have a name and a number: how their names travel with a run, and how a user asks for some of them."""

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
"""What a vocabulary calls everything else. No word: words have no brackets."""
VOCABULARY_WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
MAX_NAMES_FOR_SUGGESTIONS = 20_000
"""Among more names than these no similar ones are looked for: it would take seconds."""
NamedSamplesT = TypeVar("NamedSamplesT", bound="NamedSamples")


class NamedSamples(ABC):
    """Data whose samples are things with a name: the words of a text, the nodes of a graph, the entities of triples. `len`, `read` and
    `name` speak of them; what is drawn from for training is something else. They have no classes."""

    labels: ClassVar[None] = None
    classes: ClassVar[tuple[str, ...]] = ()
    skipped: tuple[str, ...] = ()
    """What was left out of the source because it could not be read."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """In the order of their numbers."""

    def __len__(self) -> int:
        return len(self.names)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        """Their numbers, as a table of vectors takes them."""
        return torch.as_tensor(as_index_array(ids), dtype=torch.int64)

    def name(self, i: int) -> str:
        return self.names[i]

    def drop_labels(self: NamedSamplesT) -> NamedSamplesT:
        return self

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The names in the form in which they travel with a run."""
        return build_word_tokenizer(self.names)


@dataclass(frozen=True, eq=False)
class VocabularySubset:
    """Some words of a vocabulary, behind the interface of images."""

    names: tuple[str, ...]
    ids: Int64[np.ndarray, " n"]
    """Where they stand in the vocabulary."""
    labels: None = None
    classes: tuple[str, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self.ids[as_index_array(ids)])

    def name(self, i: int) -> str:
        return self.names[i]


def build_word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """A vocabulary as a tokenizer of whole words, each with the number of its position; one more number stands for all others."""
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
    """The words of a vocabulary, each with its position, in their order."""
    vocabulary = json.loads(tokenizer.definition)["model"]["vocab"]
    return {word: i for word, i in vocabulary.items() if word != UNKNOWN_TOKEN}


def check_names(names: list[str]) -> list[str]:
    """The same names, none of which is taken."""
    if UNKNOWN_TOKEN in names:
        raise UsageError(f"the name {UNKNOWN_TOKEN!r} stands for whatever is unknown: give that entity another one")
    return names


def select_names(wanted: Any, tokenizer: Tokenizer, sample_noun: str) -> VocabularySubset:
    """Those that a user names, one or a list; an unknown name is an error."""
    number = get_vocabulary(tokenizer)
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in number:
            close = suggest_similar_names(str(name), number) if len(number) <= MAX_NAMES_FOR_SUGGESTIONS else ""
            raise UsageError(f"{name!r} is no {sample_noun} of this run, which knows {len(number):,}.{close}")
    return VocabularySubset(tuple(names), np.array([number[name] for name in names], dtype=np.int64), source=f"{len(names)} names")


def select_all_names(tokenizer: Tokenizer) -> VocabularySubset:
    """All that a run knows, in order."""
    number = get_vocabulary(tokenizer)
    return VocabularySubset(tuple(number), np.arange(len(number)), source=f"{len(number)} names")

"""Running text as numbers: the words of a corpus, end to end, and where its sentences begin.

A line of a text file is a sentence. Two kinds of lines are none: empty ones, and titles ('# …'), as in a file of articles

    # Title of an article
    Its first sentence.
    Its second sentence.

    # Title of the next one

A word is a run of letters and digits of any script, in lower case; an apostrophe between two of them belongs to it ("don't").
Nothing else is kept: punctuation, underscores and symbols separate words.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64
from torch import Tensor

from nearfar.core.errors import NearfarError, UsageError
from nearfar.data.docstrings import docstrings
from nearfar.data.images import Ids, positions
from nearfar.data.split import Splits
from nearfar.data.stores import digest
from nearfar.data.tokens import Tokenizer

MIN_COUNT = 5
"""Words that occur less often say too little about themselves to get a vector."""
_UNKNOWN = "[UNK]"
"""No word: words have no brackets."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def tokenise(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return _WORD.findall(line.lower())


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text of known words. Its samples are the *words* (what a word method represents), most frequent first: `len`, `read` and
    `name` speak of them. What is drawn from for training are places of the text: `tokens` and `begins`.

    Rare words are left out of the text itself: their neighbours move together.
    """

    words: tuple[str, ...]
    counts: Int64[np.ndarray, " words"]
    """How often each word occurs."""
    tokens: Int32[np.ndarray, " tokens"]
    """The text: for each place the position of its word in `words`."""
    offsets: Int64[np.ndarray, " sentences_and_one"]
    """Sentence i is `tokens[offsets[i] : offsets[i + 1]]`."""
    read_words: int = 0
    """Words of the source, rare ones included."""
    source: str = ""
    """What the user asked for, as text."""
    labels: None = None
    classes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        """Words, as a table of vectors takes them."""
        return torch.as_tensor(positions(ids), dtype=torch.int64)

    def name(self, i: int) -> str:
        return self.words[i]

    def unlabelled(self) -> Corpus:
        return self

    @cached_property
    def number(self) -> dict[str, int]:
        """The position of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary in the form in which it travels with a run."""
        return word_tokenizer(self.words)

    @cached_property
    def begins(self) -> Bool[np.ndarray, " tokens"]:
        """Whether a sentence begins at a place: a byte instead of a search."""
        flags = np.zeros(len(self.tokens), dtype=bool)
        flags[self.offsets[:-1]] = True
        return flags

    def sentences(self) -> Iterator[list[str]]:
        """The text again, as lists of words: what another program is given to learn from the same."""
        for start, stop in itertools.pairwise(self.offsets):
            yield [self.words[i] for i in self.tokens[start:stop]]

    @cached_property
    def fingerprint(self) -> str:
        return digest("\n".join(self.words).encode(), self.tokens.tobytes(), self.offsets.tobytes())

    def sizes(self) -> dict[str, Any]:
        return {"n": len(self), "words": len(self), "tokens": len(self.tokens)}


@dataclass(frozen=True, eq=False)
class Words:
    """Some words of a vocabulary, behind the interface of images."""

    words: tuple[str, ...]
    ids: Int64[np.ndarray, " n"]
    """Where they stand in the vocabulary."""
    labels: None = None
    classes: tuple[str, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Ids) -> Int64[Tensor, " n"]:
        return torch.from_numpy(self.ids[positions(ids)])

    def name(self, i: int) -> str:
        return self.words[i]


def word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """A vocabulary as a tokenizer of whole words, each with the number of its position; one more number stands for all others."""
    unknown = len(words)
    model = {"type": "WordLevel", "vocab": {**{word: i for i, word in enumerate(words)}, _UNKNOWN: unknown}, "unk_token": _UNKNOWN}
    split = {"type": "Split", "pattern": {"Regex": _WORD.pattern}, "behavior": "Removed", "invert": True}
    parts = {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": split, "post_processor": None, "decoder": None, "model": model}
    definition = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], **parts}
    return Tokenizer(json.dumps(definition), {"pad": unknown, "unk": unknown})


@lru_cache(maxsize=4)
def numbers(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a vocabulary, each with its position, in their order."""
    vocabulary = json.loads(tokenizer.definition)["model"]["vocab"]
    return {word: i for word, i in vocabulary.items() if word != _UNKNOWN}


def corpus_of(sentences: Iterable[Sequence[str]], min_count: int = MIN_COUNT, source: str = "sentences") -> Corpus:
    """A corpus from sentences that are cut into words already. Words of equal count stand in alphabetical order."""
    if min_count < 1:
        raise UsageError(f"--min-count must be at least 1, got {min_count}")
    found: dict[str, int] = {}
    flat, lengths = array("i"), array("i")  # 4 bytes a word: lists of strings would take 60
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
    return _without_rare(
        position[every], np.frombuffer(lengths, dtype=np.int32), tuple(names[i] for i in chosen), counts[chosen].astype(np.int64), source
    )


def _without_rare(text: np.ndarray, lengths: np.ndarray, words: tuple[str, ...], counts: np.ndarray, source: str) -> Corpus:
    """Leave out what is no word of the vocabulary (-1), and sentences of which nothing is left."""
    known = text >= 0
    before = np.concatenate([[0], np.cumsum(known)])
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.unique(np.concatenate([[0], before[ends]]))
    return Corpus(words, counts, text[known], offsets.astype(np.int64), len(text), source)


def open_corpus(spec: Any, *, min_count: int = MIN_COUNT) -> Splits:
    """Open running text. There is no test split: words are measured by what people say about them.

    spec       'docstrings' (of Python's standard library); a text file, or a folder of .txt files; a list of lines
    min_count  words that occur less often are left out
    """
    if isinstance(spec, Corpus):
        return Splits(spec, None)
    if isinstance(spec, (list, tuple)) and spec and all(isinstance(line, str) for line in spec):
        return Splits(corpus_of(map(tokenise, spec), min_count, f"list of {len(spec)} lines"), None)
    if not isinstance(spec, (str, os.PathLike)):
        raise UsageError(f"cannot read running text from a {type(spec).__name__}: give a name, a text file, a folder or a list of lines")
    text = os.fspath(spec)
    if text == "docstrings":
        return Splits(corpus_of(map(tokenise, docstrings().texts()), min_count, text), None)
    lines = itertools.chain.from_iterable(map(sentence_lines, _files(text)))
    return Splits(corpus_of(map(tokenise, lines), min_count, text), None)


def _files(text: str) -> list[Path]:
    path = Path(text).expanduser()
    if not text or not path.exists():
        raise UsageError(f"no text {text!r}: there is no such file or folder, nor such a name (docstrings)")
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"the folder {path} has no .txt files")
    return files


def sentence_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file that are sentences. A line that is no text is an error that names it."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if b"\0" in raw:
                raise NearfarError(f"{path}, line {number}: a zero byte: this is no text file")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as e:
                raise NearfarError(f"{path}, line {number}: not UTF-8 ({e.reason} at byte {e.start + 1}): save the file as UTF-8") from e
            if line and line != "#" and not line.startswith("# "):
                yield line

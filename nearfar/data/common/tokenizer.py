"""From strings to token ids: a tokenizer that travels with a run, and texts as rows of ids.

Trained tokenizers are byte-level BPE on lower-cased text: every string has a code, and the same texts give the same
merges in every process (the WordPiece trainer of `tokenizers` breaks ties by the order of a hash table).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from nearfar.core.errors import MissingExtra, NearfarError, UsageError

FORMAT = 1
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""The special tokens of a tokenizer of our own, in the order of their ids."""
MULTIPLE = 8
"""Widths of padded batches are multiples of this: few different shapes, and good ones for matrix units."""
AT_ONCE = 10_000
"""Texts that are handed to the tokenizer at a time."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of token ids of different lengths, end to end."""

    flat: Int32[np.ndarray, " total"]
    starts: Int64[np.ndarray, " n_and_one"]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter((token for row in rows for token in row), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def row(self, i: int) -> np.ndarray:
        return self.flat[self.starts[i] : self.starts[i + 1]]

    def padded(self, rows: Int64[np.ndarray, " n"], pad: int, width: int | None = None) -> Int64[Tensor, "n t"]:
        """These rows, filled up on the right to the longest of them (or to `width`), rounded up to a multiple of 8."""
        start, length = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        longest = max(int(length.max(initial=1)), 1) if width is None else width
        place = np.arange(-(-longest // MULTIPLE) * MULTIPLE)
        there = place < length[:, None]
        ids = np.full(there.shape, pad, dtype=np.int64)
        ids[there] = self.flat[(start[:, None] + place)[there]]
        return torch.from_numpy(ids)

    def longest(self, rows: Int64[np.ndarray, " n"]) -> int:
        return int((self.starts[rows + 1] - self.starts[rows]).max(initial=1))


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer of the package `tokenizers` as text, and the ids of the special tokens that it has."""

    definition: str
    """What `tokenizers.Tokenizer.to_str` gives: JSON."""
    special: Mapping[str, int]
    """pad always; cls, sep, mask, unk where there are such."""

    @cached_property
    def engine(self) -> Any:
        engine = _package().Tokenizer.from_str(self.definition)
        engine.no_padding()
        engine.no_truncation()
        return engine

    @property
    def size(self) -> int:
        """How many ids there are: the largest one, and one."""
        return max(self.engine.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, texts: Sequence[str], length: int) -> Ragged:
        """Ids with the special tokens around them, at most `length` a text."""
        self.engine.enable_truncation(length)
        rows = []
        for start in range(0, len(texts), AT_ONCE):
            rows += [coded.ids for coded in self.engine.encode_batch_fast([*map(writable, texts[start : start + AT_ONCE])])]
        return Ragged.of(rows)

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text, without padding and the marks of beginning and end."""
        hidden = {self.special.get(name) for name in ("pad", "cls", "sep")}
        return self.engine.decode([int(i) for i in ids if int(i) not in hidden], skip_special_tokens=False).strip()

    def save(self) -> str:
        """JSON that `Tokenizer.load` reads."""
        return json.dumps({"format": FORMAT, "special": dict(self.special), "tokenizer": json.loads(self.definition)}, ensure_ascii=False)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Tokenizer:
        """From a file that `save` wrote."""
        try:
            stored = json.loads(Path(path).read_text(encoding="utf-8"))
            if stored["format"] != FORMAT:
                raise NearfarError(f"{path} has format {stored['format']}; this version of nearfar reads format {FORMAT}")
            found = cls(json.dumps(stored["tokenizer"]), {str(k): int(v) for k, v in stored["special"].items()})
            _ = found.special["pad"], found.engine
        except OSError as e:
            raise UsageError(f"cannot read the tokenizer {path}: {e.strerror}") from e
        except NearfarError:
            raise
        except Exception as e:  # tokenizers raises bare exceptions
            raise NearfarError(f"{path} is no tokenizer of a run: {type(e).__name__}: {e}") from e
        return found


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE of at most `size` tokens; the same texts give the same tokenizer."""
    package = _package()
    lowest = len(SPECIAL) + 256
    if size < lowest:
        raise UsageError(f"--vocabulary must be at least {lowest} (256 bytes and {len(SPECIAL)} special tokens), got {size}")
    engine = package.Tokenizer(package.models.BPE())
    engine.normalizer = package.normalizers.Sequence([package.normalizers.NFKC(), package.normalizers.Lowercase()])
    engine.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=True)
    engine.decoder = package.decoders.ByteLevel()
    alphabet = package.pre_tokenizers.ByteLevel.alphabet()
    trainer = package.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator(map(writable, texts), trainer)
    special = {name: engine.token_to_id(token) for name, token in SPECIAL.items()}
    cls, sep = SPECIAL["cls"], SPECIAL["sep"]
    engine.post_processor = package.processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(cls, special["cls"]), (sep, special["sep"])]
    )
    return Tokenizer(engine.to_str(), special)


def writable(text: str) -> str:
    """The text with a question mark for each half of a character (a lone surrogate, as scraped JSON has them): UTF-8 has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def pretrained_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a transformers model: a local folder, or a name in the local cache."""
    try:
        from transformers import AutoTokenizer
    except ImportError as e:
        raise MissingExtra("transformers", "language", f"the tokenizer of {name}") from e
    try:
        found = AutoTokenizer.from_pretrained(name, local_files_only=True, trust_remote_code=False, use_fast=True)
        definition = found.backend_tokenizer.to_str()
    except (OSError, ValueError, AttributeError) as e:
        where = "folder has no readable tokenizer" if Path(name).is_dir() else "is neither a folder nor in the local cache"
        raise UsageError(f"--tokenizer {name}: {where} ({str(e).splitlines()[0]})") from e
    special = {short: getattr(found, f"{short}_token_id") for short in SPECIAL}
    special["pad"] = special["pad"] if special["pad"] is not None else found.eos_token_id
    if special["pad"] is None:
        raise UsageError(f"--tokenizer {name}: it has neither a padding nor an end token")
    if len(found) <= len(found.all_special_ids):
        raise UsageError(f"--tokenizer {name}: it knows no words, only special tokens: are the files of its vocabulary missing?")
    return Tokenizer(definition, {short: int(i) for short, i in special.items() if i is not None})


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as e:
        raise MissingExtra("tokenizers", "language", "text") from e
    return tokenizers

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

TOKENIZER_FORMAT = 1
SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""The special tokens of a tokenizer of our own, in the order of their ids."""
PADDED_WIDTH_MULTIPLE = 8
"""Widths of padded batches are multiples of this: few different shapes, and good ones for matrix units."""
TEXTS_PER_BATCH = 10_000
"""Texts that are handed to the tokenizer at a time."""


@dataclass(frozen=True, eq=False)
class RaggedTokenIds:
    """Rows of token ids of different lengths, end to end."""

    flat: Int32[np.ndarray, " total"]
    starts: Int64[np.ndarray, " n_and_one"]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedTokenIds:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter((token for row in rows for token in row), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def get_row(self, i: int) -> np.ndarray:
        return self.flat[self.starts[i] : self.starts[i + 1]]

    def pad_rows(self, rows: Int64[np.ndarray, " n"], pad_id: int, width: int | None = None) -> Int64[Tensor, "n t"]:
        """These rows, filled up on the right to the longest of them (or to `width`), rounded up to a multiple of 8."""
        start, length = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        longest = max(int(length.max(initial=1)), 1) if width is None else width
        place = np.arange(-(-longest // PADDED_WIDTH_MULTIPLE) * PADDED_WIDTH_MULTIPLE)
        there = place < length[:, None]
        ids = np.full(there.shape, pad_id, dtype=np.int64)
        ids[there] = self.flat[(start[:, None] + place)[there]]
        return torch.from_numpy(ids)

    def compute_max_length(self, rows: Int64[np.ndarray, " n"]) -> int:
        return int((self.starts[rows + 1] - self.starts[rows]).max(initial=1))


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer of the package `tokenizers` as text, and the ids of the special tokens that it has."""

    definition: str
    """What `tokenizers.Tokenizer.to_str` gives: JSON."""
    special_ids: Mapping[str, int]
    """pad always; cls, sep, mask, unk where there are such."""

    @cached_property
    def engine(self) -> Any:
        engine = _package().Tokenizer.from_str(self.definition)
        engine.no_padding()
        engine.no_truncation()
        return engine

    @property
    def vocab_size(self) -> int:
        """How many ids there are: the largest one, and one."""
        return max(self.engine.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, texts: Sequence[str], max_length: int) -> RaggedTokenIds:
        """Ids with the special tokens around them, at most `length` a text."""
        self.engine.enable_truncation(max_length)
        rows = []
        for start in range(0, len(texts), TEXTS_PER_BATCH):
            rows += [
                coded.ids for coded in self.engine.encode_batch_fast([*map(replace_surrogates, texts[start : start + TEXTS_PER_BATCH])])
            ]
        return RaggedTokenIds.from_rows(rows)

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text, without padding and the marks of beginning and end."""
        hidden = {self.special_ids.get(name) for name in ("pad", "cls", "sep")}
        return self.engine.decode([int(i) for i in ids if int(i) not in hidden], skip_special_tokens=False).strip()

    def to_json(self) -> str:
        """JSON that `Tokenizer.load` reads."""
        return json.dumps(
            {"format": TOKENIZER_FORMAT, "special": dict(self.special_ids), "tokenizer": json.loads(self.definition)}, ensure_ascii=False
        )

    @classmethod
    def load(cls, path: str | os.PathLike) -> Tokenizer:
        """From a file that `save` wrote."""
        try:
            stored = json.loads(Path(path).read_text(encoding="utf-8"))
            if stored["format"] != TOKENIZER_FORMAT:
                raise NearfarError(f"{path} has format {stored['format']}; this version of nearfar reads format {TOKENIZER_FORMAT}")
            found = cls(json.dumps(stored["tokenizer"]), {str(k): int(v) for k, v in stored["special"].items()})
            _ = found.special_ids["pad"], found.engine
        except OSError as e:
            raise UsageError(f"cannot read the tokenizer {path}: {e.strerror}") from e
        except NearfarError:
            raise
        except Exception as e:  # tokenizers raises bare exceptions
            raise NearfarError(f"{path} is no tokenizer of a run: {type(e).__name__}: {e}") from e
        return found


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE of at most `size` tokens; the same texts give the same tokenizer."""
    package = _package()
    lowest = len(SPECIAL_TOKENS) + 256
    if vocab_size < lowest:
        raise UsageError(f"--vocab-size must be at least {lowest} (256 bytes and {len(SPECIAL_TOKENS)} special tokens), got {vocab_size}")
    engine = package.Tokenizer(package.models.BPE())
    engine.normalizer = package.normalizers.Sequence([package.normalizers.NFKC(), package.normalizers.Lowercase()])
    engine.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=True)
    engine.decoder = package.decoders.ByteLevel()
    alphabet = package.pre_tokenizers.ByteLevel.alphabet()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS.values()), initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator(map(replace_surrogates, texts), trainer)
    special = {name: engine.token_to_id(token) for name, token in SPECIAL_TOKENS.items()}
    cls, sep = SPECIAL_TOKENS["cls"], SPECIAL_TOKENS["sep"]
    engine.post_processor = package.processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(cls, special["cls"]), (sep, special["sep"])]
    )
    return Tokenizer(engine.to_str(), special)


def replace_surrogates(text: str) -> str:
    """The text with a question mark for each half of a character (a lone surrogate, as scraped JSON has them): UTF-8 has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def load_pretrained_tokenizer(name: str) -> Tokenizer:
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
    special = {short: getattr(found, f"{short}_token_id") for short in SPECIAL_TOKENS}
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

"""Tokenizers that are stored with a run, and texts as rows of token ids.

A trained tokenizer is byte-level BPE on lower-cased text. It encodes every string, and the same texts give
the same merges in every process. (The WordPiece trainer of `tokenizers` breaks ties by the order of a hash
table.)
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
"""Special tokens of a trained tokenizer, in the order of their ids."""
PADDED_WIDTH_MULTIPLE = 8
"""Multiple to which the widths of padded batches are rounded up.

This gives few different shapes, which suit matrix units.
"""
TEXTS_PER_BATCH = 10_000
"""Number of texts that are passed to the tokenizer at a time."""


@dataclass(frozen=True, eq=False)
class RaggedTokenIds:
    """Rows of token ids with different lengths, concatenated in one array."""

    flat: Int32[np.ndarray, " total"]
    starts: Int64[np.ndarray, " n_and_one"]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedTokenIds:
        """Build the arrays from rows of token ids."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter((token for row in rows for token in row), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def get_row(self, i: int) -> np.ndarray:
        """Return the token ids of row i."""
        return self.flat[self.starts[i] : self.starts[i + 1]]

    def pad_rows(self, rows: Int64[np.ndarray, " n"], pad_id: int, width: int | None = None) -> Int64[Tensor, "n t"]:
        """Return these rows, padded on the right to one width.

        Args:
            rows: Row numbers, shape (n,).
            pad_id: Id of the padding token.
            width: Width before rounding; None takes the length of the longest row.

        Returns:
            Ids of shape (n, t), where t is the width rounded up to a multiple of 8.
        """
        start, length = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        longest = max(int(length.max(initial=1)), 1) if width is None else width
        place = np.arange(-(-longest // PADDED_WIDTH_MULTIPLE) * PADDED_WIDTH_MULTIPLE)
        there = place < length[:, None]
        ids = np.full(there.shape, pad_id, dtype=np.int64)
        ids[there] = self.flat[(start[:, None] + place)[there]]
        return torch.from_numpy(ids)

    def compute_max_length(self, rows: Int64[np.ndarray, " n"]) -> int:
        """Return the length of the longest of these rows, at least 1."""
        return int((self.starts[rows + 1] - self.starts[rows]).max(initial=1))


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Tokenizer of the package `tokenizers` as text, with the ids of its special tokens."""

    definition: str
    """JSON text that `tokenizers.Tokenizer.to_str` returns."""
    special_ids: Mapping[str, int]
    """Ids of the special tokens: always pad; cls, sep, mask and unk if they exist."""

    @cached_property
    def engine(self) -> Any:
        """Return the tokenizer object of the package `tokenizers`."""
        engine = _package().Tokenizer.from_str(self.definition)
        engine.no_padding()
        engine.no_truncation()
        return engine

    @property
    def vocab_size(self) -> int:
        """Return the number of ids: the largest id plus one."""
        return max(self.engine.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, texts: Sequence[str], max_length: int) -> RaggedTokenIds:
        """Encode texts as token ids, including the special tokens.

        Args:
            texts: Texts to encode.
            max_length: Largest number of tokens of a text; longer texts are truncated.
        """
        self.engine.enable_truncation(max_length)
        rows = []
        for start in range(0, len(texts), TEXTS_PER_BATCH):
            rows += [
                coded.ids for coded in self.engine.encode_batch_fast([*map(replace_surrogates, texts[start : start + TEXTS_PER_BATCH])])
            ]
        return RaggedTokenIds.from_rows(rows)

    def decode(self, ids: Iterable[int]) -> str:
        """Convert token ids to readable text, without padding, start and end tokens."""
        hidden = {self.special_ids.get(name) for name in ("pad", "cls", "sep")}
        return self.engine.decode([int(i) for i in ids if int(i) not in hidden], skip_special_tokens=False).strip()

    def to_json(self) -> str:
        """Return JSON text that `Tokenizer.load` reads."""
        return json.dumps(
            {"format": TOKENIZER_FORMAT, "special": dict(self.special_ids), "tokenizer": json.loads(self.definition)}, ensure_ascii=False
        )

    @classmethod
    def load(cls, path: str | os.PathLike) -> Tokenizer:
        """Read a tokenizer from a file with the text of `to_json`.

        Raises:
            UsageError: The file cannot be read.
            NearfarError: The file is not a tokenizer of a run, or has another format version.
        """
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
            raise NearfarError(f"{path} is not the tokenizer of a run: {type(e).__name__}: {e}") from e
        return found


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer with at most `vocab_size` tokens.

    The same texts give the same tokenizer.

    Raises:
        UsageError: `vocab_size` is too small for the 256 bytes and the special tokens.
    """
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
    """Replace each lone surrogate in a text with a question mark.

    A lone surrogate is half of a character, as in scraped JSON. UTF-8 cannot encode it.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def load_pretrained_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer of a transformers model.

    Args:
        name: Local folder, or name of a model in the local cache.

    Raises:
        MissingExtra: The package transformers is not installed.
        UsageError: The tokenizer cannot be read, or lacks a vocabulary or a padding token.
    """
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
        raise UsageError(f"--tokenizer {name}: its vocabulary has only special tokens: are its vocabulary files missing?")
    return Tokenizer(definition, {short: int(i) for short, i in special.items() if i is not None})


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as e:
        raise MissingExtra("tokenizers", "language", "text") from e
    return tokenizers

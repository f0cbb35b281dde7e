"""Texts behind the interface of images: rows of one or several columns, with labels or scores where there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from nearfar.core.errors import NearfarError
from nearfar.data.common.dataset import Ids, Samples, as_index_array
from nearfar.data.common.image_stores import hash_bytes
from nearfar.data.common.tokenizer import RaggedTokenIds, Tokenizer


@dataclass(frozen=True, eq=False)
class TextStore:
    """All rows of a source, in its order, as strings; where each was found; and which document it belongs to."""

    columns: Mapping[str, Sequence[str]]
    """At least one; the first is what a row is represented by."""
    files: tuple[str, ...] = ()
    """Names of the files, empty for texts that were handed over in memory."""
    file_ids: Int64[np.ndarray, " n"] | None = None
    line_numbers: Int64[np.ndarray, " n"] | None = None
    """For each row the position of its file in `files`, and the line in it."""
    document_ids: Int64[np.ndarray, " n"] | None = None
    """For each row the number of its document; rows of a document stand in its order."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def name(self, row: int) -> str:
        if self.file_ids is None or self.line_numbers is None:
            return f"row {row}"
        return f"{self.files[self.file_ids[row]]}, line {self.line_numbers[row]}"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every string, with its length: two short ones never pass for a long one."""
        parts = (f"{len(text)}:{text}" for name, column in self.columns.items() for text in (name, *column))
        return hash_bytes(
            "".join(parts).encode("utf-8", "surrogatepass"), b"" if self.document_ids is None else self.document_ids.tobytes()
        )


@dataclass(frozen=True, eq=False)
class TokenizedColumns:
    """The rows of a store as ids, by column."""

    tokenizer: Tokenizer
    max_length: int
    """Texts are cut off after so many tokens."""
    columns: Mapping[str, RaggedTokenIds]


@dataclass(frozen=True, eq=False)
class Texts(Samples):
    """Some rows of a store of texts. `read` gives token ids, padded on the right; it needs `tokenised`."""

    store: TextStore
    _: KW_ONLY
    scores: Float32[np.ndarray, " n"] | None = None
    """For each row a number: how alike its two texts are."""
    tokens: TokenizedColumns | None = None

    per_sample_fields = ("ids", "labels", "scores")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.store.columns)

    @property
    def document_ids(self) -> Int64[np.ndarray, " n"] | None:
        """Which document a row is of."""
        return None if self.store.document_ids is None else self.store.document_ids[self.ids]

    @cached_property
    def segment_ids(self) -> Int64[np.ndarray, " n"] | None:
        """Which unbroken stretch of a document a row is of: a new one begins with a document, and wherever rows were taken out."""
        passages = self.document_ids
        if passages is None or not len(passages):
            return passages
        return np.cumsum(np.append(0, (np.diff(passages) != 0) | (np.diff(self.ids) != 1)))

    def get_strings(self, ids: Ids | None = None, column: str | None = None) -> list[str]:
        """The strings of some rows (or of all), of the first column unless another is named."""
        chosen = self.ids if ids is None else self.ids[as_index_array(ids)]
        strings = self.store.columns[column or self.columns[0]]
        return [strings[int(i)] for i in chosen]

    def tokenize(self, tokenizer: Tokenizer, max_length: int) -> Texts:
        coded = {name: tokenizer.encode(column, max_length) for name, column in self.store.columns.items()}
        return replace(self, tokens=TokenizedColumns(tokenizer, max_length, coded))

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokens.tokenizer

    @property
    def _tokens(self) -> TokenizedColumns:
        if self.tokens is None:
            raise NearfarError("these texts have no token ids yet: texts.tokenize(tokenizer, length)")
        return self.tokens

    def read(self, ids: Ids) -> Int64[Tensor, "n t"]:
        """Token ids of the first column."""
        tokens = self._tokens
        return tokens.columns[self.columns[0]].pad_rows(self.ids[as_index_array(ids)], tokens.tokenizer.special_ids["pad"])

    def read_columns(self, ids: Ids, count: int) -> Int64[Tensor, "c n t"]:
        """Token ids of the first `count` columns, padded to one width."""
        tokens, rows = self._tokens, self.ids[as_index_array(ids)]
        ragged = [tokens.columns[name] for name in self.columns[:count]]
        width = max(column.compute_max_length(rows) for column in ragged)
        return torch.stack([column.pad_rows(rows, tokens.tokenizer.special_ids["pad"], width) for column in ragged])

    def drop_labels(self) -> Texts:
        """The same texts without labels and scores, so that a method cannot see them."""
        return replace(super().drop_labels(), scores=None)

    def sizes(self) -> dict[str, Any]:
        tokens = self._tokens
        return {
            "n": len(self),
            "columns": len(self.columns),
            "classes": len(self.classes),
            "vocab_size": tokens.tokenizer.vocab_size,
            "max_length": tokens.max_length,
            "special": dict(tokens.tokenizer.special_ids),
        }

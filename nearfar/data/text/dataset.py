"""Dataset of texts in one or several columns, with optional labels or scores.

The dataset has the interface of an image dataset.
"""

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
    """All rows of a text source as strings, in its order.

    The store also holds the file, the line and the document of each row.
    """

    columns: Mapping[str, Sequence[str]]
    """Texts of each column, at least one column. The first column represents a row."""
    files: tuple[str, ...] = ()
    """Names of the files; empty for texts from memory."""
    file_ids: Int64[np.ndarray, " n"] | None = None
    """Position of each row's file in `files`."""
    line_numbers: Int64[np.ndarray, " n"] | None = None
    """Line of each row in its file."""
    document_ids: Int64[np.ndarray, " n"] | None = None
    """Document number of each row. Rows of a document are in its order."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def name(self, row: int) -> str:
        """Return the file and line of a row, or its number for texts from memory."""
        if self.file_ids is None or self.line_numbers is None:
            return f"row {row}"
        return f"{self.files[self.file_ids[row]]}, line {self.line_numbers[row]}"

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of every string and of the document numbers.

        Each string is hashed with its length, so that two short strings never equal a long one.
        """
        parts = (f"{len(text)}:{text}" for name, column in self.columns.items() for text in (name, *column))
        return hash_bytes(
            "".join(parts).encode("utf-8", "surrogatepass"), b"" if self.document_ids is None else self.document_ids.tobytes()
        )


@dataclass(frozen=True, eq=False)
class TokenizedColumns:
    """Rows of a store as token ids, by column."""

    tokenizer: Tokenizer
    max_length: int
    """Number of tokens after which texts are truncated."""
    columns: Mapping[str, RaggedTokenIds]


@dataclass(frozen=True, eq=False)
class Texts(Samples):
    """Dataset of texts of a store.

    `read` returns token ids, padded on the right. It needs token ids from `tokenize`.
    """

    store: TextStore
    _: KW_ONLY
    scores: Float32[np.ndarray, " n"] | None = None
    """Similarity score of the two texts of each row."""
    tokens: TokenizedColumns | None = None

    per_sample_fields = ("ids", "labels", "scores")

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.store.columns)

    @property
    def document_ids(self) -> Int64[np.ndarray, " n"] | None:
        """Return the document number of each row."""
        return None if self.store.document_ids is None else self.store.document_ids[self.ids]

    @cached_property
    def segment_ids(self) -> Int64[np.ndarray, " n"] | None:
        """Return the number of the unbroken document segment of each row.

        A new segment begins with a document, and wherever rows were taken out.
        """
        passages = self.document_ids
        if passages is None or not len(passages):
            return passages
        return np.cumsum(np.append(0, (np.diff(passages) != 0) | (np.diff(self.ids) != 1)))

    def get_strings(self, ids: Ids | None = None, column: str | None = None) -> list[str]:
        """Return the strings of some or all rows.

        Args:
            ids: Positions of the rows; None means all rows.
            column: Name of the column; None means the first column.
        """
        chosen = self.ids if ids is None else self.ids[as_index_array(ids)]
        strings = self.store.columns[column or self.columns[0]]
        return [strings[int(i)] for i in chosen]

    def tokenize(self, tokenizer: Tokenizer, max_length: int) -> Texts:
        """Return the texts with token ids, at most `max_length` tokens each."""
        coded = {name: tokenizer.encode(column, max_length) for name, column in self.store.columns.items()}
        return replace(self, tokens=TokenizedColumns(tokenizer, max_length, coded))

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the token ids."""
        return self._tokens.tokenizer

    @property
    def _tokens(self) -> TokenizedColumns:
        if self.tokens is None:
            raise NearfarError("these texts have no token ids yet: call texts.tokenize(tokenizer, length)")
        return self.tokens

    def read(self, ids: Ids) -> Int64[Tensor, "n t"]:
        """Return the token ids of the first column, shape (n, t)."""
        tokens = self._tokens
        return tokens.columns[self.columns[0]].pad_rows(self.ids[as_index_array(ids)], tokens.tokenizer.special_ids["pad"])

    def read_columns(self, ids: Ids, count: int) -> Int64[Tensor, "c n t"]:
        """Return the token ids of the first `count` columns, padded to one width.

        Returns:
            Ids of shape (count, n, t).
        """
        tokens, rows = self._tokens, self.ids[as_index_array(ids)]
        ragged = [tokens.columns[name] for name in self.columns[:count]]
        width = max(column.compute_max_length(rows) for column in ragged)
        return torch.stack([column.pad_rows(rows, tokens.tokenizer.special_ids["pad"], width) for column in ragged])

    def drop_labels(self) -> Texts:
        """Return the same texts without labels and scores, so that a method cannot see them."""
        return replace(super().drop_labels(), scores=None)

    def sizes(self) -> dict[str, Any]:
        """Return the sizes from which recipes and encoders are built."""
        tokens = self._tokens
        return {
            "n": len(self),
            "columns": len(self.columns),
            "classes": len(self.classes),
            "vocab_size": tokens.tokenizer.vocab_size,
            "max_length": tokens.max_length,
            "special": dict(tokens.tokenizer.special_ids),
        }

"""Queries of users, converted to vectors.

row:17, 17        a row of the index itself
name:cat.png      the row of that name
-                 vectors on stdin: the bytes of a .npy, or JSON, one list of numbers per line
a file            an image, a sound: anything that the run can encode
other words       a text, for runs on texts or on images with captions; a word, for runs on words
                  ("text:17" is the text 17)
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from jaxtyping import Float

from nearfar.core.errors import UsageError
from nearfar.index.base_index import NAME_PREFIX, ROW_PATTERN, Index
from nearfar.train.encode import encode_all
from nearfar.train.model import Model


@dataclass(frozen=True)
class SearchQuery:
    """Query as vectors, with its row, path or text for display."""

    vectors: Float[np.ndarray, "q d"]
    row: int | None = None
    path: str | None = None
    text: str | None = None

    @property
    def title(self) -> str:
        """Return a short description of the query."""
        if self.row is not None:
            return f"row {self.row}"
        return self.text or self.path or f"{len(self.vectors)} vector{'' if len(self.vectors) == 1 else 's'}"


def read_query(query: str, index: Index, load_model: Callable[[], Model], stdin: BinaryIO | None = None) -> SearchQuery:
    """Convert a query of a user to vectors.

    Args:
        query: Query in one of the forms of this module.
        index: Index to search.
        load_model: Function that loads the model. It is called only for texts and files, because rows and
            vectors need no model.
        stdin: Input stream for the query "-". The default is the standard input.
    """
    if query == "-":
        return SearchQuery(parse_vectors((stdin or sys.stdin.buffer).read()))
    if ROW_PATTERN.fullmatch(query) or query.startswith(NAME_PREFIX):
        row = index.resolve_row(query)
        return SearchQuery(index.read_vectors([row]), row=row)
    model = load_model()
    if os.path.isfile(query) and model.modality.reads_query_files():
        return SearchQuery(_encode_query(model, [query]), path=query)
    samples = model.modality.parse_query(model, query)
    return SearchQuery(_encode_query(model, samples), text=query.removeprefix("text:"))


def _encode_query(model: Model, samples: Any) -> Float[np.ndarray, "q d"]:
    """Encode samples as query vectors.

    A model with separate encoders for questions and passages (DPR) uses the one for questions, because the
    index holds passages.
    """
    if not hasattr(model.net, "question"):
        return model.encode(samples).numpy()
    parts = model.inputs.adapt(samples)
    return torch.cat([encode_all(model.recipe, model.net, part, model.device, tower="question") for part in parts]).numpy()


def parse_vectors(data: bytes) -> Float[np.ndarray, "q d"]:
    """Parse vectors from the bytes of stdin.

    The data is a .npy of one vector or a table, or lines of JSON: lists of numbers, or objects with "vector".
    Returns an array (q, d).
    """
    if not data.strip():
        raise UsageError("no vectors came on stdin: send a .npy, or JSON, one list of numbers a line")
    found = _parse_npy(data) if data.startswith(b"\x93NUMPY") else _parse_lines(data)
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.size:
        raise UsageError(f"stdin: expected a vector or a table of vectors, got numbers of shape {found.shape}")
    return found


def _parse_npy(data: bytes) -> np.ndarray:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise UsageError(f"stdin is not a valid .npy file: {e}") from e
    if found.dtype.kind not in "fiu":
        raise UsageError(f"stdin: the .npy holds {found.dtype}, not numbers")
    return found.astype(np.float32)


def _parse_lines(data: bytes) -> np.ndarray:
    rows: list[np.ndarray] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            rows.append(_parse_line(line, number))
            if len(rows[-1]) != len(rows[0]):
                raise UsageError(f"stdin, line {number}: expected a list of {len(rows[0])} numbers, as on the first line")
    return np.stack(rows)


def _parse_line(line: bytes, number: int) -> np.ndarray:
    try:
        value = json.loads(line)
        found = np.array(value["vector"] if isinstance(value, dict) else value, dtype=np.float32)
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(f"stdin, line {number}: not a JSON list of numbers ({e})") from e
    if found.ndim != 1:
        raise UsageError(f"stdin, line {number}: not a list of numbers")
    return found

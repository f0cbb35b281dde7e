"""From what a user asks for to a vector.

row:17, 17        a row of the index itself
name:cat.png      the row of that name
-                 vectors on stdin: the bytes of a .npy, or JSON, one list of numbers a line
a file            an image, a sound: anything that the run can encode
other words       a text, for runs on texts or on images with captions; a word, for runs on words ("text:17" is the text 17)
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
from nearfar.data.image_text.dataset import as_texts
from nearfar.index.interface import NAME, ROW, Index
from nearfar.train.encode import encode_all
from nearfar.train.model import Trained

OF_FILES = {"image": "an image", "audio": "a sound"}
"""Modalities whose samples are files."""


@dataclass(frozen=True)
class Query:
    """What was asked, as vectors, and how to show it."""

    vectors: Float[np.ndarray, "q d"]
    row: int | None = None
    path: str | None = None
    text: str | None = None

    @property
    def title(self) -> str:
        if self.row is not None:
            return f"row {self.row}"
        return self.text or self.path or f"{len(self.vectors)} vector{'' if len(self.vectors) == 1 else 's'}"


def read_query(asked: str, index: Index, trained: Callable[[], Trained], stdin: BinaryIO | None = None) -> Query:
    """`trained` is called only if something has to be encoded: rows and vectors need no model."""
    if asked == "-":
        return Query(read_vectors((stdin or sys.stdin.buffer).read()))
    if ROW.fullmatch(asked) or asked.startswith(NAME):
        row = index.row_of(asked)
        return Query(index.vectors([row]), row=row)
    model = trained()
    modality = model.recipe.card.modality
    if os.path.isfile(asked) and modality not in ("text", "words"):
        return Query(_encoded(model, [asked]), path=asked)
    if modality in OF_FILES:
        raise UsageError(f"there is no file {asked!r}: this index is searched with {OF_FILES[modality]}, with row:N, or with vectors (-)")
    text = asked.removeprefix("text:")
    return Query(_encoded(model, as_texts([text]) if modality == "image-text" and asked != text else [text]), text=text)


def _encoded(trained: Trained, samples: Any) -> Float[np.ndarray, "q d"]:
    """A run that tells questions from passages (DPR) has a tower for each; an index holds passages."""
    if not hasattr(trained.net, "question"):
        return trained.encode(samples).numpy()
    parts = trained.inputs.accept(samples)
    return torch.cat([encode_all(trained.recipe, trained.net, part, trained.device, tower="question") for part in parts]).numpy()


def read_vectors(data: bytes) -> Float[np.ndarray, "q d"]:
    """A .npy of one vector or a table, or lines of JSON: lists of numbers, or objects with "vector"."""
    if not data.strip():
        raise UsageError("no vectors came on stdin: send a .npy, or JSON, one list of numbers a line")
    found = _from_npy(data) if data.startswith(b"\x93NUMPY") else _from_lines(data)
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.size:
        raise UsageError(f"stdin: a vector or a table of vectors was expected, not numbers of shape {found.shape}")
    return found


def _from_npy(data: bytes) -> np.ndarray:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as e:
        raise UsageError(f"stdin is no whole .npy: {e}") from e
    if found.dtype.kind not in "fiu":
        raise UsageError(f"stdin: the .npy holds {found.dtype}, not numbers")
    return found.astype(np.float32)


def _from_lines(data: bytes) -> np.ndarray:
    rows: list[np.ndarray] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            rows.append(_from_line(line, number))
            if len(rows[-1]) != len(rows[0]):
                raise UsageError(f"stdin, line {number}: a list of {len(rows[0])} numbers was expected, as on the first line")
    return np.stack(rows)


def _from_line(line: bytes, number: int) -> np.ndarray:
    try:
        value = json.loads(line)
        found = np.array(value["vector"] if isinstance(value, dict) else value, dtype=np.float32)
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(f"stdin, line {number}: not a JSON list of numbers ({e})") from e
    if found.ndim != 1:
        raise UsageError(f"stdin, line {number}: not a list of numbers")
    return found

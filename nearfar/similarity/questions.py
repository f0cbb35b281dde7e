"""What counts as alike among questions and passages: a question and what answers it, and the place of the answer in the passage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from nearfar.core import Key, Raw, Rows, Similarity, UsageError, Views
from nearfar.data.questions.joined_rows import join, mark

NAMES = {
    "question": ("question", "query", "anchor"),
    "passage": ("passage", "context", "positive"),
    "negative": ("negative", "hard_neg"),
    "answer": ("answer",),
}
"""What the columns of a table are called, by what they are for."""


def column(data: Any, role: str) -> str | None:
    return next((name for name in NAMES[role] if name in data.columns), None)


def needed(data: Any, *roles: str) -> None:
    for role in roles:
        if column(data, role) is None:
            raise UsageError(
                f"this recipe learns from columns named {' and '.join(roles)}, {data.source} has {', '.join(data.columns)}: "
                "give such a table, or SQuAD's .json"
            )


@dataclass(frozen=True)
class Asked(Similarity):
    """A question, the passage that answers it and, where the data bring one, a passage that only looks so: token ids, each (n, t).

    "same" and "same_negative" are equal numbers where passages are equal texts: a passage that answers two questions of a batch is
    no negative of either.
    """

    def count(self, data: Any) -> int:
        needed(data, "question", "passage")
        return len(data)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        found: dict[str, Tensor] = {}
        for role in ("question", "passage", "negative"):
            name = column(data, role)
            if name is not None:
                found[role] = data.tokens.columns[name].padded(data.ids[rows.ids], data.tokenizer.special["pad"])
                if role != "question":
                    found["same" if role == "passage" else "same_negative"] = numbers(data.texts(rows.ids, name))
        return found

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return dict(raw)


@dataclass(frozen=True)
class Answered(Similarity):
    """Question and passage as one row of tokens, "tokens" (n, t), with what is "inside" the passage, and where an answer may "begin"
    and "end": wherever its text occurs."""

    length: int
    """Tokens of a row, at most."""

    def count(self, data: Any) -> int:
        needed(data, "question", "passage", "answer")
        return len(data)

    def read(self, data: Any, rows: Rows, key: Key) -> Raw:
        question, passage, answer = (data.texts(rows.ids, column(data, role)) for role in ("question", "passage", "answer"))
        joined = join(data.tokenizer, question, passage, self.length)
        begin, end = mark(joined, passage, answer)
        return {"tokens": joined.ids, "inside": joined.inside, "begin": begin, "end": end}

    def view(self, raw: Raw, rows: Rows, key: Key) -> Views:
        return dict(raw)


def numbers(texts: Sequence[str]) -> Int64[Tensor, " n"]:
    """A number for each text, the same for equal texts in every process."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in digests], dtype=torch.int64)

"""Similarity of questions and passages: answering passages, and answer positions in a passage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from nearfar.core import RandomKey, RawBatch, Rows, Similarity, UsageError, Views
from nearfar.data.questions.question_passage_pairs import mark_answers, tokenize_pairs

COLUMN_NAMES = {
    "question": ("question", "query", "anchor"),
    "passage": ("passage", "context", "positive"),
    "negative": ("negative", "hard_neg"),
    "answer": ("answer",),
}
"""Accepted column names of a table, by role."""


def find_column(data: Any, role: str) -> str | None:
    """Return the name of the column with this role, or None."""
    return next((name for name in COLUMN_NAMES[role] if name in data.columns), None)


def check_columns(data: Any, *roles: str) -> None:
    """Raise `UsageError` if the data lack a column for one of the roles."""
    for role in roles:
        if find_column(data, role) is None:
            raise UsageError(
                f"this recipe learns from columns named {' and '.join(roles)}, {data.source} has {', '.join(data.columns)}: "
                "give such a table, or SQuAD's .json"
            )


@dataclass(frozen=True)
class QuestionPassagePairs(Similarity):
    """Questions with their passages as token ids, each (n, t).

    "question" and "passage" are always present. "negative" is a passage that seems right but is wrong, if the
    data have that column.

    Equal passage texts have equal numbers in "same" and "same_negative", so a passage that answers two
    questions of a batch is not a negative of either.
    """

    def count(self, data: Any) -> int:
        check_columns(data, "question", "passage")
        return len(data)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        found: dict[str, Tensor] = {}
        for role in ("question", "passage", "negative"):
            name = find_column(data, role)
            if name is not None:
                found[role] = data.tokens.columns[name].pad_rows(data.ids[rows.ids], data.tokenizer.special_ids["pad"])
                if role != "question":
                    found["same" if role == "passage" else "same_negative"] = hash_texts(data.get_strings(rows.ids, name))
        return found

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)


@dataclass(frozen=True)
class AnswerSpans(Similarity):
    """Question and passage as one token row, with answer positions.

    "tokens" has the shape (n, t). "inside" marks the passage. "begin" and "end" mark every occurrence of the
    answer text.
    """

    max_length: int
    """Maximum number of tokens per row."""

    def count(self, data: Any) -> int:
        check_columns(data, "question", "passage", "answer")
        return len(data)

    def read(self, data: Any, rows: Rows, rng_key: RandomKey) -> RawBatch:
        question, passage, answer = (data.get_strings(rows.ids, find_column(data, role)) for role in ("question", "passage", "answer"))
        joined = tokenize_pairs(data.tokenizer, question, passage, self.max_length)
        begin, end = mark_answers(joined, passage, answer)
        return {"tokens": joined.ids, "inside": joined.passage_mask, "begin": begin, "end": end}

    def view(self, raw: RawBatch, rows: Rows, rng_key: RandomKey) -> Views:
        return dict(raw)


def hash_texts(texts: Sequence[str]) -> Int64[Tensor, " n"]:
    """Hash each text to an integer.

    Equal texts have equal hashes in every process.
    """
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in digests], dtype=torch.int64)

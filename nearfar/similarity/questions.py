"""What counts as alike among questions and passages: a question and what answers it, and the place of the answer in the passage."""

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
"""What the columns of a table are called, by what they are for."""


def find_column(data: Any, role: str) -> str | None:
    return next((name for name in COLUMN_NAMES[role] if name in data.columns), None)


def check_columns(data: Any, *roles: str) -> None:
    for role in roles:
        if find_column(data, role) is None:
            raise UsageError(
                f"this recipe learns from columns named {' and '.join(roles)}, {data.source} has {', '.join(data.columns)}: "
                "give such a table, or SQuAD's .json"
            )


@dataclass(frozen=True)
class QuestionPassagePairs(Similarity):
    """A question, the passage that answers it and, where the data bring one, a passage that only looks so: token ids, each (n, t).

    "same" and "same_negative" are equal numbers where passages are equal texts: a passage that answers two questions of a batch is
    no negative of either.
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
    """Question and passage as one row of tokens, "tokens" (n, t), with what is "inside" the passage, and where an answer may "begin"
    and "end": wherever its text occurs."""

    max_length: int
    """Tokens of a row, at most."""

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
    """A number for each text, the same for equal texts in every process."""
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in digests], dtype=torch.int64)

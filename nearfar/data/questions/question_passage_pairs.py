"""Question-passage pairs as token rows, with the character offsets of passage tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from nearfar.data.common.tokenizer import PADDED_WIDTH_MULTIPLE, Tokenizer

MAX_QUESTION_SHARE = 0.5
"""Largest share of a row that a question may fill. Longer questions are truncated."""


@dataclass(frozen=True, eq=False)
class TokenizedPairs:
    """Token rows of the form [CLS] question [SEP] passage [SEP]."""

    ids: Int64[Tensor, "n t"]
    passage_mask: Bool[Tensor, "n t"]
    """True at tokens of the passage."""
    passage_offsets: Int64[Tensor, "n t 2"]
    """Offset of the first character of each passage token, and the offset after its last one.

    Other tokens have 0, 0.
    """


def tokenize_pairs(tokenizer: Tokenizer, questions: Sequence[str], passages: Sequence[str], max_length: int) -> TokenizedPairs:
    """Tokenize each question and its passage as one row with special tokens.

    Rows are truncated to `max_length` tokens and padded on the right to a common width.
    """
    engine = tokenizer.engine
    engine.no_truncation()
    asked, told = engine.encode_batch(list(questions)), engine.encode_batch(list(passages))
    rows, most = [], int(max_length * MAX_QUESTION_SHARE)
    for question, passage in zip(asked, told, strict=True):
        # drop the [CLS] token of the passage
        first = 1 if passage.special_tokens_mask[:1] == [1] else 0
        asked_ids = question.ids if len(question.ids) <= most else [*question.ids[: most - 1], question.ids[-1]]
        rows.append(([*asked_ids, *passage.ids[first:]][:max_length], len(asked_ids) - first, passage))
    width = -(-max(len(ids) for ids, _, _ in rows) // PADDED_WIDTH_MULTIPLE) * PADDED_WIDTH_MULTIPLE
    joined = torch.full((len(rows), width), tokenizer.special_ids["pad"])
    places = torch.zeros(len(rows), width, 2, dtype=torch.int64)
    inside = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, (ids, shift, passage) in enumerate(rows):
        joined[i, : len(ids)] = torch.tensor(ids)
        ordinary = [j for j, special in enumerate(passage.special_tokens_mask) if not special and j + shift < len(ids)]
        if ordinary:
            at = torch.tensor(ordinary)
            inside[i, at + shift] = True
            places[i, at + shift] = torch.tensor(passage.offsets)[at]
    return TokenizedPairs(joined, inside, places)


def mark_answers(pairs: TokenizedPairs, passages: Sequence[str], answers: Sequence[str]) -> tuple[Bool[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Mark the first and last tokens of answers.

    All occurrences in the passage are marked, except truncated ones.

    Returns:
        Two boolean tensors `(n, t)`: beginnings and ends.
    """
    begin, end = torch.zeros_like(pairs.passage_mask), torch.zeros_like(pairs.passage_mask)
    for i, (passage, answer) in enumerate(zip(passages, answers, strict=True)):
        first, after = pairs.passage_offsets[i].unbind(1)
        for start in _find_occurrences(passage, answer):
            covered = (pairs.passage_mask[i] & (after > start) & (first < start + len(answer))).nonzero()[:, 0]
            if len(covered) and int(after[covered[-1]]) >= start + len(answer):
                begin[i, covered[0]] = end[i, covered[-1]] = True
    return begin, end


def _find_occurrences(passage: str, answer: str) -> Iterator[int]:
    start = passage.find(answer)
    while start >= 0 and answer:
        yield start
        start = passage.find(answer, start + 1)

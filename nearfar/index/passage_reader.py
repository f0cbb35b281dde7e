"""Reading: the span of a passage that answers a question, by a run of the recipe `dpr-reader`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nearfar.core import UsageError
from nearfar.data.questions.question_passage_pairs import TokenizedPairs, tokenize_pairs
from nearfar.train.model import Model

MAX_ANSWER_TOKENS = 30
"""Tokens of an answer, at most."""
PASSAGES_PER_BATCH = 32


@dataclass(frozen=True)
class Span:
    """A part of a passage: its text, the letters from `start` to before `end`, and its log-probability within the passage."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, eq=False)
class PassageReader:
    """Marks answers. `length`: tokens of question and passage together; more than the run was trained with is allowed."""

    model: Model
    max_length: int

    @classmethod
    def from_model(cls, model: Model, max_length: int | None = None) -> PassageReader:
        if not hasattr(model.recipe, "score_spans") or model.tokenizer is None:
            where = model.run_folder.path if model.run_folder else "this run"
            raise UsageError(f"{where} is no reader but {type(model.recipe).__name__}: train one with `nearfar fit dpr-reader`")
        return cls(model, max_length or int(model.net.sizes["max_length"]))

    @torch.no_grad()
    def read(self, questions: Sequence[str], passages: Sequence[str]) -> list[Span]:
        """The best span of each passage for the question opposite it; empty where the passage has no token left."""
        model, spans = self.model, []
        assert model.tokenizer is not None
        for start in range(0, len(questions), PASSAGES_PER_BATCH):
            asked, told = questions[start : start + PASSAGES_PER_BATCH], passages[start : start + PASSAGES_PER_BATCH]
            joined = tokenize_pairs(model.tokenizer, asked, told, self.max_length)
            ids, inside = joined.ids.to(model.device), joined.passage_mask.to(model.device)
            begins, ends = model.recipe.score_spans(model.net, ids, inside)  # type: ignore[attr-defined]
            first, last, score = (x.cpu() for x in find_best_spans(begins, ends, inside))
            spans += [_build_span(joined, i, told[i], int(first[i]), int(last[i]), float(score[i])) for i in range(len(told))]
        return spans


def find_best_spans(
    start_scores: Float[Tensor, "n t"],
    end_scores: Float[Tensor, "n t"],
    is_passage: Bool[Tensor, "n t"],
    max_tokens: int = MAX_ANSWER_TOKENS,
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"], Float[Tensor, " n"]]:
    """First and last token of the span with the largest sum, no longer than `longest`, and that sum."""
    n, t = start_scores.shape
    place = torch.arange(t, device=start_scores.device)
    ahead = place[None, :] - place[:, None]
    allowed = ((ahead >= 0) & (ahead < max_tokens)) & is_passage[:, :, None] & is_passage[:, None, :]
    both = (start_scores[:, :, None] + end_scores[:, None, :]).masked_fill(~allowed, -torch.inf)
    score, best = both.view(n, -1).max(1)
    return best // t, best % t, score


def _build_span(joined: TokenizedPairs, row: int, passage: str, first: int, last: int, score: float) -> Span:
    if not bool(joined.passage_mask[row].any()):
        return Span("", 0, 0, float("-inf"))
    start, end = int(joined.passage_offsets[row, first, 0]), int(joined.passage_offsets[row, last, 1])
    said = passage[start:end]
    start += len(said) - len(said.lstrip())  # tokens of some tokenizers begin with the space before a word
    return Span(said.strip(), start, start + len(said.strip()), score)

"""Reading: the span of a passage that answers a question, by a run of the recipe `dpr-reader`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nearfar.core import UsageError
from nearfar.data.questions.joined_rows import Joined, join
from nearfar.train.model import Trained

LONGEST = 30
"""Tokens of an answer, at most."""
BATCH = 32


@dataclass(frozen=True)
class Span:
    """A part of a passage: its text, the letters from `start` to before `end`, and its log-probability within the passage."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, eq=False)
class Reader:
    """Marks answers. `length`: tokens of question and passage together; more than the run was trained with is allowed."""

    trained: Trained
    length: int

    @classmethod
    def of(cls, trained: Trained, length: int | None = None) -> Reader:
        if not hasattr(trained.recipe, "spans") or trained.tokenizer is None:
            where = trained.folder.path if trained.folder else "this run"
            raise UsageError(f"{where} is no reader but {type(trained.recipe).__name__}: train one with `nearfar fit dpr-reader`")
        return cls(trained, length or int(trained.net.sizes["length"]))

    @torch.no_grad()
    def read(self, questions: Sequence[str], passages: Sequence[str]) -> list[Span]:
        """The best span of each passage for the question opposite it; empty where the passage has no token left."""
        trained, spans = self.trained, []
        assert trained.tokenizer is not None
        for start in range(0, len(questions), BATCH):
            asked, told = questions[start : start + BATCH], passages[start : start + BATCH]
            joined = join(trained.tokenizer, asked, told, self.length)
            ids, inside = joined.ids.to(trained.device), joined.inside.to(trained.device)
            begins, ends = trained.recipe.spans(trained.net, ids, inside)  # type: ignore[attr-defined]
            first, last, score = (x.cpu() for x in best_span(begins, ends, inside))
            spans += [_span(joined, i, told[i], int(first[i]), int(last[i]), float(score[i])) for i in range(len(told))]
        return spans


def best_span(
    begins: Float[Tensor, "n t"], ends: Float[Tensor, "n t"], inside: Bool[Tensor, "n t"], longest: int = LONGEST
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"], Float[Tensor, " n"]]:
    """First and last token of the span with the largest sum, no longer than `longest`, and that sum."""
    n, t = begins.shape
    place = torch.arange(t, device=begins.device)
    ahead = place[None, :] - place[:, None]
    allowed = ((ahead >= 0) & (ahead < longest)) & inside[:, :, None] & inside[:, None, :]
    both = (begins[:, :, None] + ends[:, None, :]).masked_fill(~allowed, -torch.inf)
    score, best = both.view(n, -1).max(1)
    return best // t, best % t, score


def _span(joined: Joined, row: int, passage: str, first: int, last: int, score: float) -> Span:
    if not bool(joined.inside[row].any()):
        return Span("", 0, 0, float("-inf"))
    start, end = int(joined.places[row, first, 0]), int(joined.places[row, last, 1])
    said = passage[start:end]
    start += len(said) - len(said.lstrip())  # tokens of some tokenizers begin with the space before a word
    return Span(said.strip(), start, start + len(said.strip()), score)

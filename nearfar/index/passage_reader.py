"""Reader that marks the answer to a question in a passage, with a run of `dpr-reader`."""

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
"""Maximum number of tokens of an answer."""
PASSAGES_PER_BATCH = 32


@dataclass(frozen=True)
class Span:
    """Part of a passage that answers a question.

    Attributes:
        text: Text of the span.
        start: Index of its first character.
        end: Index after its last character.
        score: Log-probability of the span within the passage.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, eq=False)
class PassageReader:
    """Reader that marks answers in passages.

    `max_length` is the number of tokens of question and passage together. It may be larger than in training.
    """

    model: Model
    max_length: int

    @classmethod
    def from_model(cls, model: Model, max_length: int | None = None) -> PassageReader:
        """Create a reader from a model of the recipe `dpr-reader`."""
        if not hasattr(model.recipe, "score_spans") or model.tokenizer is None:
            where = model.run_folder.path if model.run_folder else "this run"
            raise UsageError(f"{where} is not a reader but {type(model.recipe).__name__}: train one with `nearfar fit dpr-reader`")
        return cls(model, max_length or int(model.net.sizes["max_length"]))

    @torch.no_grad()
    def read(self, questions: Sequence[str], passages: Sequence[str]) -> list[Span]:
        """Return the best span of each passage for its question.

        The lists have the same length, and question i belongs to passage i. A span is empty if no token of
        its passage fits.
        """
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
    """Find the span of each row with the largest sum of scores.

    Args:
        start_scores: Score of each token as the first one of the span (n, t).
        end_scores: Score of each token as the last one of the span (n, t).
        is_passage: True for tokens of the passage (n, t).
        max_tokens: Maximum number of tokens of a span.

    Returns:
        First token, last token and sum of scores of each row (n,).
    """
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

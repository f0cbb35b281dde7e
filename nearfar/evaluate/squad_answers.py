"""SQuAD's exact match and F1, with its normalization of answers.

Normalized answers are in lower case, without punctuation and articles, with single spaces.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from nearfar.core import NearfarError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, eq=False)
class AnswerScores:
    """Scores of each question, from 0 to 1."""

    exact_match: Float64[np.ndarray, " q"]
    f1: Float64[np.ndarray, " q"]


def normalize_answer(answer: str) -> str:
    """Normalize an answer as SQuAD does: "The  Normans'" becomes "normans"."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answer: str) -> float:
    """Return 1 if both answers are equal after normalization, else 0."""
    return float(normalize_answer(predicted) == normalize_answer(answer))


def token_f1(predicted: str, answer: str) -> float:
    """Compute the harmonic mean of precision and recall of the words.

    Each word counts as often as it occurs.
    """
    said, right = normalize_answer(predicted).split(), normalize_answer(answer).split()
    common = sum((Counter(said) & Counter(right)).values())
    return 2 * common / (len(said) + len(right)) if common else 0.0


def score_answers(predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> AnswerScores:
    """Score each prediction against its best accepted answer.

    Args:
        predicted: One answer per question.
        answers: Accepted answers of each question, at least one.
    """
    if len(predicted) != len(answers):
        raise NearfarError(f"score_answers: {len(predicted)} predictions, but accepted answers for {len(answers)} questions")
    if not all(answers):
        raise NearfarError(f"score_answers: question {[bool(a) for a in answers].index(False)} has no accepted answer")
    best = [
        [max(measure(said, a) for a in right) for said, right in zip(predicted, answers, strict=True)]
        for measure in (exact_match, token_f1)
    ]
    return AnswerScores(*(np.array(values, dtype=np.float64) for values in best))

"""Word similarity (WordSim-353, SimLex-999) and word analogies (Google's a : b as c : ?).

Human judgments are the reference. Every measure reports how much of its file the vocabulary covers. A pair or
question with an unknown word is left out, never guessed. Words are compared in lower case.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import NearfarError, UsageError
from nearfar.evaluate.correlation import spearman
from nearfar.evaluate.input_checks import check_features

QUESTIONS_PER_BLOCK = 256
"""Number of questions that are compared with the whole vocabulary at once."""


@dataclass(frozen=True)
class RatedWordPairs:
    """Pairs of words and their human similarity scores."""

    pairs: tuple[tuple[str, str], ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class WordSimilarityResult:
    """Spearman's correlation with human scores, and the number of covered pairs."""

    spearman: float
    covered: int
    pairs: int


@dataclass(frozen=True)
class AnalogyResult:
    """Number of correct answers among the covered questions of a section."""

    correct: int
    covered: int
    questions: int

    @property
    def accuracy(self) -> float:
        """Return the share of correct answers, NaN if no question is covered."""
        return self.correct / self.covered if self.covered else math.nan

    def __add__(self, other: AnalogyResult) -> AnalogyResult:
        return AnalogyResult(self.correct + other.correct, self.covered + other.covered, self.questions + other.questions)


def read_rated_pairs(path: str | os.PathLike) -> RatedWordPairs:
    """Read WordSim-353 or SimLex-999 in the layout of their authors.

    Columns are separated by tabs (or commas). Comments begin with '#'. If the first row is a header with a
    column SimLex999, this column is the score. Otherwise it is the third column.
    """
    rows = list(_read_lines(path))
    if not rows:
        raise NearfarError(f"{path}: contains no word pairs")
    header = [name.strip() for name in _split_fields(rows[0][1])]
    column = header.index("SimLex999") if "SimLex999" in header else 2
    named = not _is_number(header[column]) if len(header) > column else True
    pairs, scores = [], []
    for line, text in rows[1:] if named else rows:
        fields = _split_fields(text)
        if len(fields) <= column or not fields[0].strip() or not fields[1].strip():
            raise NearfarError(f"{path}, line {line}: expected two words and a score in column {column + 1}, found {text!r}")
        if not _is_number(fields[column]):
            raise NearfarError(f"{path}, line {line}: the score {fields[column].strip()!r} is not a number")
        pairs.append((fields[0].strip().lower(), fields[1].strip().lower()))
        scores.append(float(fields[column]))
    if not pairs:
        raise NearfarError(f"{path}: contains no word pairs")
    return RatedWordPairs(tuple(pairs), tuple(scores))


def read_analogies(path: str | os.PathLike) -> dict[str, list[tuple[str, ...]]]:
    """Read Google's analogy questions by section.

    ': name' opens a section. 'a b c d' asks a : b as c : ?, with the answer d.
    """
    sections: dict[str, list[tuple[str, ...]]] = {}
    section: list[tuple[str, ...]] | None = None
    for line, text in _read_lines(path):
        if text.startswith(":"):
            section = sections.setdefault(text[1:].strip(), [])
            continue
        words = tuple(text.lower().split())
        if section is None:
            raise NearfarError(f"{path}, line {line}: a question before the first section (': name')")
        if len(words) != 4:
            raise NearfarError(f"{path}, line {line}: expected four words, found {len(words)}: {text!r}")
        section.append(words)
    if not any(sections.values()):
        raise NearfarError(f"{path}: contains no questions")
    return sections


def score_word_similarity(vectors: Float[Tensor, "n d"], word_ids: Mapping[str, int], rated_pairs: RatedWordPairs) -> WordSimilarityResult:
    """Compute Spearman's correlation between cosines and human scores.

    Only pairs of known words count.

    Args:
        vectors: Word vectors (n, d).
        word_ids: Row of each word in `vectors`.
        rated_pairs: Pairs with human scores.
    """
    check_features(vectors, "word vectors")
    known = [i for i, (a, b) in enumerate(rated_pairs.pairs) if a in word_ids and b in word_ids]
    if len(known) < 2:
        return WordSimilarityResult(math.nan, len(known), len(rated_pairs.pairs))
    a, b = (torch.tensor([word_ids[rated_pairs.pairs[i][side]] for i in known], device=vectors.device) for side in (0, 1))
    cosines = F.cosine_similarity(vectors[a].double(), vectors[b].double())
    said = torch.tensor([rated_pairs.scores[i] for i in known], dtype=torch.float64, device=vectors.device)
    return WordSimilarityResult(float(spearman(cosines, said)), len(known), len(rated_pairs.pairs))


def score_analogies(
    vectors: Float[Tensor, "n d"],
    word_ids: Mapping[str, int],
    sections: Mapping[str, Sequence[tuple[str, ...]]],
    max_words: int | None = None,
) -> dict[str, AnalogyResult]:
    r"""Answer analogies by 3CosAdd and count the correct answers by section.

    The answer is the word nearest to \(\hat b - \hat a + \hat c\) by cosine, with a, b and c excluded.

    Args:
        vectors: Word vectors (n, d).
        word_ids: Row of each word in `vectors`.
        sections: Questions by section.
        max_words: Number of words that are known, as candidates and in questions: the first ones of a list in
            the order of frequency.
    """
    if max_words is not None and max_words < 1:
        raise UsageError(f"analogies: max_words must be at least 1, got {max_words}")
    check_features(vectors, "word vectors")
    table = F.normalize(vectors[:max_words], dim=1)
    known = {word: i for word, i in word_ids.items() if i < len(table)}
    found = {}
    for name, questions in sections.items():
        covered = [[known[w] for w in q] for q in questions if all(w in known for w in q)]
        ids = torch.tensor(covered, dtype=torch.long, device=table.device).view(-1, 4)
        right = sum(int((_answer_analogies(table, part) == part[:, 3]).sum()) for part in ids.split(QUESTIONS_PER_BLOCK))
        found[name] = AnalogyResult(right, len(covered), len(questions))
    return found


def _answer_analogies(table: Float[Tensor, "n d"], questions: Int[Tensor, "q 4"]) -> Int[Tensor, " q"]:
    a, b, c = (table[questions[:, i]] for i in range(3))
    scores = F.normalize(b - a + c, dim=1) @ table.T
    return scores.scatter(1, questions[:, :3], -math.inf).argmax(1)


def _read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yield numbered lines that are neither empty nor comments."""
    try:
        raw = Path(path).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}") from e
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as e:
            raise NearfarError(f"{path}, line {number}: not UTF-8 ({e.reason} at byte {e.start + 1})") from e
        if text and not text.startswith("#"):
            yield number, text


def _split_fields(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else text.split(",")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False

r"""What people say about words: how alike two are (WordSim-353, SimLex-999), and a : b as c : ? (Google's analogies).

Every measure says how much of its file the vocabulary covers: a pair or question with an unknown word is left out, never guessed.
Words are compared in lower case.
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
from nearfar.evaluate.input_checks import as_features

AT_ONCE = 256
"""Questions that are compared with the whole vocabulary at a time."""


@dataclass(frozen=True)
class Judged:
    """Pairs of words, and how alike people found them."""

    pairs: tuple[tuple[str, str], ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Agreement:
    """Spearman's correlation with people's judgements, and how many of the pairs it is about."""

    spearman: float
    covered: int
    pairs: int


@dataclass(frozen=True)
class Answers:
    """Right answers among the covered questions of a section."""

    right: int
    covered: int
    questions: int

    @property
    def accuracy(self) -> float:
        return self.right / self.covered if self.covered else math.nan

    def __add__(self, other: Answers) -> Answers:
        return Answers(self.right + other.right, self.covered + other.covered, self.questions + other.questions)


def read_judged(path: str | os.PathLike) -> Judged:
    """WordSim-353 or SimLex-999, as their authors lay them out: columns by tabs (or commas), remarks behind '#'.

    Where the first row is a header that names a column SimLex999, that is the score; else it is the third.
    """
    rows = list(_lines(path))
    if not rows:
        raise NearfarError(f"{path}: no pair of words in it")
    header = [name.strip() for name in _fields(rows[0][1])]
    column = header.index("SimLex999") if "SimLex999" in header else 2
    named = not _number(header[column]) if len(header) > column else True
    pairs, scores = [], []
    for line, text in rows[1:] if named else rows:
        fields = _fields(text)
        if len(fields) <= column or not fields[0].strip() or not fields[1].strip():
            raise NearfarError(f"{path}, line {line}: two words and a score in column {column + 1} were expected, found {text!r}")
        if not _number(fields[column]):
            raise NearfarError(f"{path}, line {line}: the score {fields[column].strip()!r} is no number")
        pairs.append((fields[0].strip().lower(), fields[1].strip().lower()))
        scores.append(float(fields[column]))
    if not pairs:
        raise NearfarError(f"{path}: no pair of words in it")
    return Judged(tuple(pairs), tuple(scores))


def read_analogies(path: str | os.PathLike) -> dict[str, list[tuple[str, ...]]]:
    """Google's questions by section: ': name' opens one, 'a b c d' asks a : b as c : ?, to be answered by d."""
    sections: dict[str, list[tuple[str, ...]]] = {}
    section: list[tuple[str, ...]] | None = None
    for line, text in _lines(path):
        if text.startswith(":"):
            section = sections.setdefault(text[1:].strip(), [])
            continue
        words = tuple(text.lower().split())
        if section is None:
            raise NearfarError(f"{path}, line {line}: a question before the first section (': name')")
        if len(words) != 4:
            raise NearfarError(f"{path}, line {line}: four words were expected, found {len(words)}: {text!r}")
        section.append(words)
    if not any(sections.values()):
        raise NearfarError(f"{path}: no questions in it")
    return sections


def agreement(vectors: Float[Tensor, "n d"], number: Mapping[str, int], judged: Judged) -> Agreement:
    """Spearman's correlation between cosines and judgements, over the pairs of known words."""
    as_features(vectors, "word vectors")
    known = [i for i, (a, b) in enumerate(judged.pairs) if a in number and b in number]
    if len(known) < 2:
        return Agreement(math.nan, len(known), len(judged.pairs))
    a, b = (torch.tensor([number[judged.pairs[i][side]] for i in known], device=vectors.device) for side in (0, 1))
    cosines = F.cosine_similarity(vectors[a].double(), vectors[b].double())
    said = torch.tensor([judged.scores[i] for i in known], dtype=torch.float64, device=vectors.device)
    return Agreement(float(spearman(cosines, said)), len(known), len(judged.pairs))


def analogies(
    vectors: Float[Tensor, "n d"], number: Mapping[str, int], sections: Mapping[str, Sequence[tuple[str, ...]]], among: int | None = None
) -> dict[str, Answers]:
    r"""3CosAdd by section: the word nearest to \(\hat b - \hat a + \hat c\) by cosine, a, b and c themselves excluded.

    `among`: only the first so many words (of a list in the order of frequency) are known, as candidates and in questions.
    """
    if among is not None and among < 1:
        raise UsageError(f"analogies: among must be at least 1, got {among}")
    as_features(vectors, "word vectors")
    table = F.normalize(vectors[:among], dim=1)
    known = {word: i for word, i in number.items() if i < len(table)}
    found = {}
    for name, questions in sections.items():
        covered = [[known[w] for w in q] for q in questions if all(w in known for w in q)]
        ids = torch.tensor(covered, dtype=torch.long, device=table.device).view(-1, 4)
        right = sum(int((_answer(table, part) == part[:, 3]).sum()) for part in ids.split(AT_ONCE))
        found[name] = Answers(right, len(covered), len(questions))
    return found


def _answer(table: Float[Tensor, "n d"], questions: Int[Tensor, "q 4"]) -> Int[Tensor, " q"]:
    a, b, c = (table[questions[:, i]] for i in range(3))
    scores = F.normalize(b - a + c, dim=1) @ table.T
    return scores.scatter(1, questions[:, :3], -math.inf).argmax(1)


def _lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Numbered lines that are neither empty nor remarks."""
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


def _fields(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else text.split(",")


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False

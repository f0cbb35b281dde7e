"""Hard negatives for questions: passages that BM25 finds and that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def iterate_mined_rows(questions: Any, depth: int = 50) -> Iterator[dict[str, Any]]:
    """Yield a row for each answering passage.

    The negatives of a question are used in turn.

    Args:
        questions: questions with passages and the answering passages of each.
        depth: number of passages that BM25 returns for each question.
    """
    from nearfar.index.bm25 import build_bm25
    from nearfar.index.retrievers import LexicalRetriever, mine_hard_negatives

    most = max(map(len, questions.gold))
    found = mine_hard_negatives(questions, LexicalRetriever(build_bm25(questions.passages)), most, depth)
    for question, gold, negatives, answers in zip(questions.questions, questions.gold, found, questions.answers, strict=True):
        for turn, place in enumerate(gold if negatives else ()):
            negative = questions.passages[negatives[turn % len(negatives)]]
            yield {"question": question, "passage": questions.passages[place], "negative": negative, "answers": list(answers)}

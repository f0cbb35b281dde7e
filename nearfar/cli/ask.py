"""`nearfar ask`: a question to an index of passages, answered with passages and, by a reader, with a span of them."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from nearfar.cli.commands import add_device, add_own_recipe, parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import NearfarError, UsageError
from nearfar.index.bm25 import BM25, build_bm25, digest_of, load_bm25
from nearfar.index.interface import Index
from nearfar.index.local_index import LocalIndex
from nearfar.index.passage_reader import Reader, Span
from nearfar.index.retrievers import Dense, Hybrid, Lexical, Retriever
from nearfar.train.model import Trained, load

How = Literal["hybrid", "dense", "words"]
SHOWN = 320
"""Characters of a passage that are printed."""
log = logging.getLogger("nearfar")


@dataclass(frozen=True)
class Passage:
    """A passage that was found, and the best answer in it where a reader looked for one."""

    row: int
    name: str
    score: float
    text: str
    span: Span | None = None


def ask_parser() -> Parser:
    about = "Passages of an index that answer a question; with a reader, the words of them that do."
    parser = Parser("nearfar ask", 'INDEX "QUESTION" [--k 5] [--reader RUN] [--json]', about)
    parser.add_argument("index", metavar="INDEX", help="what `nearfar index` made of a run on texts, such as dpr")
    parser.add_argument("question", metavar="QUESTION", help="in quotes")
    parser.add_argument("--k", default=5, **value_of(int), help="how many passages. Default: 5.")
    parser.add_argument(
        "--how",
        **value_of(How),
        help="by common words (BM25), by vectors, or by both. Default: hybrid where the index is a folder, else dense.",
    )
    parser.add_argument("--weight", **value_of(float), help="of vectors in a hybrid, 0 to 1. Default: 0.5.")
    parser.add_argument("--reader", metavar="RUN", help="a run of dpr-reader: it marks the answer in each passage")
    parser.add_argument("--json", action="store_true", help="one object with question, how, answer and passages")
    parser.add_argument("--run", dest="moved", metavar="RUN", help="where the run of the index lies now, if it was moved")
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    return parser


def ask(argv: Sequence[str]) -> None:
    given = parse_flags(ask_parser(), argv)
    if given["k"] < 1:
        raise UsageError(f"--k must be at least 1, got {given['k']}")
    if not given["question"].strip():
        raise UsageError("the question is empty")
    from nearfar.index.build import open_index

    index = open_index(given["index"])
    how: How = given.get("how") or ("hybrid" if isinstance(index, LocalIndex) else "dense")
    if "weight" in given and how != "hybrid":
        raise UsageError(f"--weight is for a hybrid search, and this one is by {'vectors' if how == 'dense' else how}")
    reader = Reader.of(load(given["reader"], given["device"])) if "reader" in given else None
    model = lambda: index.trained(given.get("moved"), device=given["device"], recipe=given.get("recipe"))
    retriever = open_retriever(index, model, how, given.get("weight", 0.5))
    passages = answer(given["question"], index, retriever, given["k"], reader)
    if given.get("json"):
        first = passages[0].span if passages and passages[0].span else None
        found = {"question": given["question"], "how": how, "answer": first.text if first else None}
        print(json.dumps(found | {"passages": [asdict(passage) for passage in passages]}, ensure_ascii=False, indent=2))
    else:
        _print(passages)


def open_retriever(index: Index, trained: Callable[[], Trained], how: How = "hybrid", weight: float = 0.5) -> Retriever:
    """What answers questions from an index. `trained` is called only if vectors are needed."""
    if how == "dense":
        return Dense(trained(), index)
    rows, texts = texts_of(index)
    lexical = Lexical(_words_of(index, texts), rows)
    return lexical if how == "words" else Hybrid(lexical, Dense(trained(), index), weight)


def answer(question: str, index: Index, retriever: Retriever, k: int = 5, reader: Reader | None = None) -> list[Passage]:
    """The k best passages, the best first; with a reader, the best span of each."""
    hits = retriever.search([question], k)
    items = index.items(hits.rows[0])
    texts = [item.get("text") or "" for item in items]
    spans = reader.read([question] * len(texts), texts) if reader else [None] * len(texts)
    found = zip(items, hits.scores[0], texts, spans, strict=True)
    passages = [Passage(item["row"], item["name"], float(score), text, span) for item, score, text, span in found]
    return [p for p in passages if p.score > 0] if isinstance(retriever, Lexical) else passages  # without a common word none is found


def texts_of(index: Index) -> tuple[np.ndarray, list[str]]:
    """Every row that can be found, with its text."""
    if not isinstance(index, LocalIndex):
        raise UsageError(f"a search by words reads all texts, which {index.where} keeps elsewhere: use --how dense")
    rows = np.setdiff1d(np.arange(index.ever), index.deleted)
    texts = [item.get("text") for item in index.items(rows)]
    if not texts or any(text is None for text in texts):
        raise UsageError(f"{index.where} is no index of texts: `nearfar search` finds its items")
    return rows, [text for text in texts if text is not None]


def _words_of(index: Index, texts: list[str]) -> BM25:
    """BM25 of the texts: kept beside the index, made anew when they have changed."""
    folder = Path(index.where)
    if folder.is_dir():
        try:
            kept = load_bm25(folder)
            if kept.digest == digest_of(texts):
                return kept
        except NearfarError as e:
            log.debug("%s", e)
    words = build_bm25(texts)
    if folder.is_dir() and os.access(folder, os.W_OK):
        words.save(folder)
    return words


def _print(passages: Sequence[Passage]) -> None:
    if not passages:
        print("no passage has a word in common with the question")
    if passages and passages[0].span:
        print(f"answer: {passages[0].span.text or '(none)'}\n")
    for place, passage in enumerate(passages, 1):
        print(f"{place}. {passage.score:.4f}  {passage.name}")
        print(f"   {shown(passage, sys.stdout.isatty())}")


def shown(passage: Passage, watched: bool) -> str:
    """The passage, or the part of it around its answer, which is bold on a terminal and »marked« elsewhere."""
    text, span = passage.text, passage.span
    start = 0 if span is None or span.end <= SHOWN else max(0, span.start - SHOWN // 2)
    end = min(len(text), start + SHOWN)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    if span is None or not span.text:
        return before + _one_line(text[start:end]) + after
    end = max(end, span.end)
    opening, closing = ("\x1b[1;7m", "\x1b[0m") if watched else ("»", "«")
    parts = text[start : span.start], opening, text[span.start : span.end], closing, text[span.end : end]
    return before + _one_line("".join(parts)) + after


def _one_line(text: str) -> str:
    return " ".join(text.split())

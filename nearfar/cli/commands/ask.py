"""Find passages of an index that answer a question, and the answer in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError

if TYPE_CHECKING:
    from nearfar.index.question_answering import Passage

GROUP = "Vectors and search"
MAX_SHOWN_CHARACTERS = 320
"""Largest number of characters of a printed passage."""


def build_ask_parser() -> FlagParser:
    """Build the flag parser of `nearfar ask`."""
    about = "Find passages of an index that answer a question. With a reader, mark the answer in them."
    parser = FlagParser("nearfar ask", 'INDEX "QUESTION" [--k 5] [--reader RUN] [--json]', about)
    parser.add_argument("index", metavar="INDEX", help="index of a run on texts, such as dpr")
    parser.add_argument("question", metavar="QUESTION", help="the question, in quotes")
    parser.add_argument("--k", default=5, **get_argparse_options(int), help="number of passages. Default: 5.")
    parser.add_argument(
        "--how",
        **get_argparse_options(Literal["hybrid", "dense", "words"]),
        help="search by common words (BM25), by vectors (dense), or by both. Default: hybrid if the index is a folder, else dense.",
    )
    parser.add_argument("--weight", **get_argparse_options(float), help="weight of the vectors in a hybrid search, 0 to 1. Default: 0.5.")
    parser.add_argument("--reader", metavar="RUN", help="run of dpr-reader that marks the answer in each passage")
    parser.add_argument("--json", action="store_true", help="print one JSON object with question, how, answer and passages")
    parser.add_argument("--run", dest="moved", metavar="RUN", help="folder of the index's run, if it was moved")
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    return parser


def run(argv: Sequence[str]) -> None:
    """Run `nearfar ask`."""
    given = parse_flags(build_ask_parser(), argv)
    if given["k"] < 1:
        raise UsageError(f"--k must be at least 1, got {given['k']}")
    if not given["question"].strip():
        raise UsageError("the question is empty")
    from nearfar.api.load import load
    from nearfar.api.search import load_index_model
    from nearfar.index.index_factory import open_index
    from nearfar.index.local_index import LocalIndex
    from nearfar.index.passage_reader import PassageReader
    from nearfar.index.question_answering import RetrievalMode, answer_question, open_retriever

    index = open_index(given["index"])
    how: RetrievalMode = given.get("how") or ("hybrid" if isinstance(index, LocalIndex) else "dense")
    if "weight" in given and how != "hybrid":
        raise UsageError(f"--weight is for a hybrid search, but this search uses {'vectors' if how == 'dense' else how}")
    reader = PassageReader.from_model(load(given["reader"], given["device"])) if "reader" in given else None
    model = lambda: load_index_model(index, given.get("moved"), device=given["device"], recipe=given.get("recipe"))
    retriever = open_retriever(index, model, how, given.get("weight", 0.5))
    passages = answer_question(given["question"], index, retriever, given["k"], reader)
    if given.get("json"):
        first = passages[0].span if passages and passages[0].span else None
        found = {"question": given["question"], "how": how, "answer": first.text if first else None}
        print(json.dumps(found | {"passages": [asdict(passage) for passage in passages]}, ensure_ascii=False, indent=2))
    else:
        _print(passages)


def _print(passages: Sequence[Passage]) -> None:
    if not passages:
        print("no passage has a word in common with the question")
    if passages and passages[0].span:
        print(f"answer: {passages[0].span.text or '(none)'}\n")
    for place, passage in enumerate(passages, 1):
        print(f"{place}. {passage.score:.4f}  {passage.name}")
        print(f"   {format_passage(passage, sys.stdout.isatty())}")


def format_passage(passage: Passage, on_terminal: bool) -> str:
    """Return the passage, or the part around its answer if the passage is long.

    The answer is bold on a terminal and »marked« elsewhere.
    """
    text, span = passage.text, passage.span
    start = 0 if span is None or span.end <= MAX_SHOWN_CHARACTERS else max(0, span.start - MAX_SHOWN_CHARACTERS // 2)
    end = min(len(text), start + MAX_SHOWN_CHARACTERS)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    if span is None or not span.text:
        return before + _one_line(text[start:end]) + after
    end = max(end, span.end)
    opening, closing = ("\x1b[1;7m", "\x1b[0m") if on_terminal else ("»", "«")
    parts = text[start : span.start], opening, text[span.start : span.end], closing, text[span.end : end]
    return before + _one_line("".join(parts)) + after


def _one_line(text: str) -> str:
    return " ".join(text.split())

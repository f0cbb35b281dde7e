"""`nearfar mine`: for each question a passage that BM25 takes for an answer and that is none, as a table to train dpr on."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from nearfar.cli.commands import parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import UsageError
from nearfar.core.files import atomic_write, writable_target


def mine_parser() -> Parser:
    about = "Hard negatives for dpr: for each question the best passage by BM25 that does not answer it."
    parser = Parser("nearfar mine", "DATA --out pairs.jsonl", about)
    parser.add_argument("data", metavar="DATA", help="SQuAD's .json, or a .csv, .tsv, .jsonl or .parquet with question and passage")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="a .jsonl of question, passage, negative and answers, for `nearfar fit dpr --data`"
    )
    parser.add_argument("--depth", default=50, **value_of(int), help="how many passages BM25 is asked for. Default: 50.")
    parser.add_argument(
        "--on-error", default="stop", **value_of(Literal["stop", "skip"]), help="stop at a broken row, or leave it out. Default: stop."
    )
    parser.add_common()
    return parser


def mine(argv: Sequence[str]) -> None:
    given = parse_flags(mine_parser(), argv)
    if given["depth"] < 1:
        raise UsageError(f"--depth must be at least 1, got {given['depth']}")
    if not given["out"].endswith(".jsonl"):
        raise UsageError(f"--out {given['out']}: lines of JSON are written, name a file that ends in .jsonl")
    writable_target(given["out"])
    from nearfar.data.questions.dataset import read_questions

    questions = read_questions(given["data"], given["on_error"])
    rows = list(mined_rows(questions, given["depth"]))
    if not rows:
        raise UsageError(f"every passage that BM25 finds in {given['data']} answers its question: there is no negative to mine")
    with atomic_write(given["out"]) as f:
        f.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass") for row in rows)
    used = len({row["question"] for row in rows})
    print(f"{given['out']}: {len(rows):,} rows of {used:,} questions")
    if not given.get("quiet", False):
        asked = len(set(questions.questions))
        if used < asked:
            print(f"{asked - used:,} of {asked:,} questions left out: no passage, or no negative", file=sys.stderr)
        print(f"Next: `nearfar fit dpr --data {shlex.quote(given['out'])} --out RUN`", file=sys.stderr)


def mined_rows(questions: Any, depth: int = 50) -> Iterator[dict[str, Any]]:
    """A row for each passage that answers a question; negatives of the question take turns."""
    from nearfar.index.bm25 import build_bm25
    from nearfar.index.retrievers import Lexical, mined

    most = max(map(len, questions.gold))
    found = mined(questions, Lexical(build_bm25(questions.passages)), most, depth)
    for question, gold, negatives, answers in zip(questions.questions, questions.gold, found, questions.answers, strict=True):
        for turn, place in enumerate(gold if negatives else ()):
            negative = questions.passages[negatives[turn % len(negatives)]]
            yield {"question": question, "passage": questions.passages[place], "negative": negative, "answers": list(answers)}

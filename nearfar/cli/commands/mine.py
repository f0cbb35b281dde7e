"""Find hard negatives for dpr: passages that BM25 finds and that do not answer the question."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Literal

from nearfar.api.mine import iterate_mined_rows
from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError
from nearfar.core.files import atomic_write, resolve_writable_path

GROUP = "Data"


def build_mine_parser() -> FlagParser:
    """Build the flag parser of `nearfar mine`."""
    about = "Find hard negatives for dpr: for each question the best passage by BM25 that does not answer it."
    parser = FlagParser("nearfar mine", "DATA --out pairs.jsonl", about)
    parser.add_argument("data", metavar="DATA", help="SQuAD .json, or a .csv, .tsv, .jsonl or .parquet table with question and passage")
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="output .jsonl with question, passage, negative and answers, for `nearfar fit dpr --data`",
    )
    parser.add_argument(
        "--depth", default=50, **get_argparse_options(int), help="number of passages that BM25 returns for each question. Default: 50."
    )
    parser.add_argument(
        "--on-error",
        default="stop",
        **get_argparse_options(Literal["stop", "skip"]),
        help="stop at a broken row, or skip it. Default: stop.",
    )
    parser.add_common_flags()
    return parser


def run(argv: Sequence[str]) -> None:
    """Run `nearfar mine`."""
    given = parse_flags(build_mine_parser(), argv)
    if given["depth"] < 1:
        raise UsageError(f"--depth must be at least 1, got {given['depth']}")
    if not given["out"].endswith(".jsonl"):
        raise UsageError(f"--out {given['out']}: the output is JSON lines, name a file that ends in .jsonl")
    resolve_writable_path(given["out"])
    from nearfar.data.questions.load import load_questions

    questions = load_questions(given["data"], given["on_error"])
    rows = list(iterate_mined_rows(questions, given["depth"]))
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

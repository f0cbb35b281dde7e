"""List all methods by modality and loss family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, get_args

from nearfar.cli.common_flags import parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError
from nearfar.core.card import HeadType, LossFamily, SimilarityType
from nearfar.core.errors import suggest_similar_names

GROUP = "Methods"
EXAMPLES_OF_FILTERS = """examples:
  nearfar list --modality image --loss no-negatives
  nearfar list --similarity natural-clustering --since 2020 --json"""


def build_list_parser() -> FlagParser:
    """Build the flag parser of `nearfar list`."""
    about = "All methods by modality and loss family, one a line. Several filters may be combined."
    parser = FlagParser("nearfar list", "[filters] [--json]", about, EXAMPLES_OF_FILTERS)
    filters = parser.add_argument_group("filters")
    filters.add_argument("--modality", metavar="NAME", help="kind of data, such as image or text")
    filters.add_argument("--similarity", metavar="NAME", help=_describe("source of similar samples", SimilarityType))
    filters.add_argument("--loss", metavar="NAME", help=_describe("family of the loss", LossFamily))
    filters.add_argument("--head", metavar="NAME", help=_describe("transform head", HeadType))
    filters.add_argument("--year", **get_argparse_options(int), help="methods of this year")
    filters.add_argument("--since", **get_argparse_options(int), help="methods of this year and later")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects, with all fields of the cards")
    parser.add_common_flags()
    return parser


def _describe(what: str, kind: Any) -> str:
    return f"{what}: {', '.join(map(_to_word, get_args(kind)))}"


def _to_word(text: str) -> str:
    """Return a value of a card as one word, such as "nce-and-softmax"."""
    return text.lower().replace(" ", "-")


def run(argv: Sequence[str]) -> None:
    """Run `nearfar list`."""
    given = parse_flags(build_list_parser(), argv)
    from nearfar.recipes.method_summary import read_all_summaries
    from nearfar.reports.method_card import build_method_row

    rows = select_rows([build_method_row(summary) for summary in read_all_summaries()], given)
    if given.get("json"):
        print(json.dumps(rows, indent=2))
    elif rows:
        print(format_method_list(rows))
        count = "1 method" if len(rows) == 1 else f"{len(rows)} methods"
        print(f"\n{count}. `nearfar card NAME` shows one.")
    else:
        print("No method matches all of these filters. `nearfar list` shows all methods.")


def select_rows(rows: list[dict[str, Any]], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that match all given filters.

    Raises:
        UsageError: if a filter has a value that no card can have.
    """
    modalities = sorted({row["modality"] for row in rows})
    filters = {
        "modality": ("modality", modalities),
        "similarity": ("similarity_type", get_args(SimilarityType)),
        "loss": ("family", get_args(LossFamily)),
        "head": ("head_type", get_args(HeadType)),
    }
    for flag, (field, known) in filters.items():
        if flag in given:
            wanted = _check_value(flag, given[flag], [_to_word(value) for value in known])
            rows = [row for row in rows if wanted in map(_to_word, _as_tuple(row[field]))]
    rows = [row for row in rows if row["year"] == given.get("year", row["year"])]
    return [row for row in rows if row["year"] >= given.get("since", row["year"])]


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _check_value(flag: str, value: str, known: list[str]) -> str:
    word = _to_word(value)
    if word not in known:
        longer = [name for name in known if word and word in name]
        near = f" Did you mean {' or '.join(map(repr, longer))}?" if longer else suggest_similar_names(word, known)
        raise UsageError(f"--{flag}: unknown value {value!r}.{near} Known: {', '.join(known)}")
    return word


def format_method_list(rows: list[dict[str, Any]]) -> str:
    """Format methods under their modality and loss family, one a line, the oldest first."""
    families = get_args(LossFamily)
    lines = []
    for modality, group in groupby(sorted(rows, key=lambda row: row["modality"]), key=lambda row: row["modality"]):
        members = sorted(group, key=lambda row: (families.index(row["family"]), row["year"], row["name"]))
        width = max(len(row["name"]) for row in members)
        lines += ["", modality]
        for family, methods in groupby(members, key=lambda row: row["family"]):
            lines.append(f"  {family}")
            lines += [f"    {row['name']:{width}}  {row['year']}  {row['title']}" for row in methods]
    return "\n".join(lines[1:])

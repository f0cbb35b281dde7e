"""Find the nearest samples to a text, an image, a sound, a row or vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_model_flags, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError
from nearfar.core.files import resolve_writable_path

GROUP = "Vectors and search"
MAX_COLUMN_CHARACTERS = 100
"""Largest number of characters of a text in a table line."""


def build_search_parser() -> FlagParser:
    """Build the flag parser of `nearfar search`."""
    about = "Find the nearest samples of an index."
    parser = FlagParser("nearfar search", "INDEX QUERY [--k 10] [--json] [--html FILE]", about)
    parser.add_argument("index", metavar="INDEX", help="index folder, file.db or http://host:19530")
    parser.add_argument(
        "query",
        metavar="QUERY",
        help="a text, a word, an image or sound file, a row of the index (row:17 or 17) or its name (name:cat.png), or - for vectors on "
        "stdin: the bytes of a .npy, or JSON, one list a line (text:17 is the text 17)",
    )
    parser.add_argument("--k", default=10, **get_argparse_options(int), help="number of hits. Default: 10.")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each query, with query, metric and hits")
    parser.add_argument("--html", metavar="FILE", help="also write a page with the hits that works offline")
    add_model_flags(parser)
    parser.add_common_flags()
    return parser


def run(argv: Sequence[str]) -> None:
    """Run `nearfar search`."""
    given = parse_flags(build_search_parser(), argv)
    if given["k"] < 1:
        raise UsageError(f"--k must be at least 1, got {given['k']}")
    page = resolve_writable_path(given["html"]) if "html" in given else None
    from nearfar.api.search import load_index_model
    from nearfar.index import describe_hits, open_index, read_query

    opened = open_index(given["index"])
    query = read_query(
        given["query"], opened, lambda: load_index_model(opened, given.get("moved"), device=given["device"], recipe=given.get("recipe"))
    )
    hits = opened.search(query.vectors, given["k"])
    found = describe_hits(opened, hits)
    titles = [query.title] if len(found) == 1 else [f"vector {i}" for i in range(len(found))]
    if page is not None:
        from nearfar.reports.search import write_search_page

        write_search_page(page, opened, query, titles, found)
    if given.get("json"):
        for title, row in zip(titles, found, strict=True):
            print(json.dumps({"query": title, "metric": opened.metric, "hits": row}))
    else:
        _print(titles, found)


def _print(titles: Sequence[str], found: Sequence[list[dict[str, Any]]]) -> None:
    for title, hits in zip(titles, found, strict=True):
        if len(found) > 1:
            print(f"{title}:")
        labelled = any(hit["label"] is not None for hit in hits)
        heads = ["score", "row", *(["label"] if labelled else []), "item"]
        terminal.print_table(heads, [_line(hit, labelled) for hit in hits])


def _line(hit: dict[str, Any], labelled: bool) -> list[str]:
    text = " ".join(hit["text"].split()) if "text" in hit else hit["name"]
    text = text if len(text) <= MAX_COLUMN_CHARACTERS else text[: MAX_COLUMN_CHARACTERS - 1] + "…"
    return [f"{hit['score']:.4f}", str(hit["row"]), *([hit["label"] or ""] if labelled else []), text]

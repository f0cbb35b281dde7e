"""`nearfar index` and `nearfar search`: flags in, calls of `nearfar.index`, answers on stdout."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Literal

from nearfar.cli import terminal
from nearfar.cli.commands import add_device, add_on_error, add_own_recipe, parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import UsageError
from nearfar.core.files import writable_target

LONGEST_LINE = 100
"""Characters of a text that a line of a table shows."""


def index_parser() -> Parser:
    usage = "RUN --data DATA --out INDEX\n       nearfar index INDEX --add DATA\n       nearfar index INDEX --delete NAME_OR_ROW …"
    about = "Encode data with a run and build an index that `nearfar search` answers from; add to one; delete from one."
    parser = Parser("nearfar index", usage, about)
    parser.add_argument("run", metavar="RUN", help="a folder that `nearfar fit` made; with --add and --delete: the index to change")
    parser.add_argument("--data", metavar="DATA", help="what `nearfar fit --data` takes")
    parser.add_argument("--out", metavar="INDEX", help="the folder to make")
    parser.add_argument("--store", metavar="STORE", help="instead of --out: file.db (milvus-lite) or http://host:19530 (a Milvus server)")
    parser.add_argument(
        "--kind",
        default="auto",
        **value_of(Literal["auto", "exact", "hnsw", "ivf"]),
        help="compare with all, walk a graph, or look into cells. Default: auto, by the number of vectors.",
    )
    parser.add_argument("--metric", default="cosine", **value_of(Literal["cosine", "dot", "l2"]), help="what is near. Default: cosine.")
    parser.add_argument("--overwrite", action="store_true", help="replace the index that is there")
    parser.add_argument("--add", metavar="DATA", help="add these data to the index, encoded by its own run")
    parser.add_argument("--delete", metavar="NAME_OR_ROW", nargs="+", help="delete items by row (17, row:17) or name (cat.png, name:17)")
    add_on_error(parser)
    _model_flags(parser)
    parser.add_common()
    return parser


def _model_flags(parser: Parser) -> None:
    parser.add_argument("--run", dest="moved", metavar="RUN", help="where the run of the index lies now, if it was moved")
    add_device(parser)
    add_own_recipe(parser)


def index(argv: Sequence[str]) -> None:
    given = parse_flags(index_parser(), argv)
    if "add" in given or "delete" in given:
        _check_change(given)
        _change(given)
    else:
        _check_build(given)
        _build(given)


def _check_change(given: dict[str, Any]) -> None:
    if "add" in given and "delete" in given:
        raise UsageError("give --add or --delete, not both")
    others = [f"--{name}" for name in ("data", "out", "store", "overwrite") if name in given]
    if others:
        raise UsageError(f"--add and --delete change an index that is there: leave out {', '.join(others)}")


def _check_build(given: dict[str, Any]) -> None:
    if "data" not in given:
        raise UsageError("--data is missing: what to index, as `nearfar fit --data` takes it")
    if ("out" in given) == ("store" in given):
        raise UsageError("give --out INDEX (a folder) or --store STORE (Milvus), one of them")
    if "moved" in given:
        raise UsageError("--run is for an index that is there: a new one is built with RUN")


def _build(given: dict[str, Any]) -> None:
    from nearfar.index import index_data
    from nearfar.index.milvus_address import is_store

    target = given.get("out") or given["store"]
    if is_store(target) != ("store" in given):
        kinds = "--store names file.db or http://host:19530", "--out names a folder, not a .db or an address: use --store"
        raise UsageError(f"{target!r}: {kinds['out' in given]}")
    built = index_data(
        given["run"],
        given["data"],
        target,
        **{name: given[name] for name in ("metric", "kind", "device")},
        overwrite=given.get("overwrite", False),
        recipe=given.get("recipe"),
        on_error=given.get("on_error"),
        progress=terminal.progress("embedding", given["quiet"]),
    )
    print(f"{built.where}: {len(built):,} vectors of {built.dim}, {built.kind}, {built.metric}")
    if not given["quiet"]:
        print(f"Next: `nearfar search {shlex.quote(target)} row:0`", file=sys.stderr)


def _change(given: dict[str, Any]) -> None:
    from nearfar.index import add_data, open_index

    opened = open_index(given["run"])
    if "delete" in given:
        rows = opened.delete(given["delete"])
        print(f"{opened.where}: {len(rows):,} deleted, {len(opened):,} left")
        return
    trained = opened.trained(given.get("moved"), device=given["device"], recipe=given.get("recipe")).reading(given.get("on_error"))
    rows = add_data(opened, given["add"], trained, progress=terminal.progress("embedding", given["quiet"]))
    print(f"{opened.where}: {len(rows):,} added as rows {rows[0]} to {rows[-1]}, {len(opened):,} in all")


def search_parser() -> Parser:
    about = "The nearest items of an index."
    parser = Parser("nearfar search", "INDEX QUERY [--k 10] [--json] [--html FILE]", about)
    parser.add_argument("index", metavar="INDEX", help="what `nearfar index` made: a folder, file.db, http://host:19530")
    parser.add_argument(
        "query",
        metavar="QUERY",
        help="a text, a word, an image or sound file, a row of the index (row:17 or 17) or its name (name:cat.png), or - for vectors on "
        "stdin: the bytes of a .npy, or JSON, one list a line (text:17 is the text 17)",
    )
    parser.add_argument("--k", default=10, **value_of(int), help="how many. Default: 10.")
    parser.add_argument("--json", action="store_true", help="for each query a line: an object with query, metric and hits")
    parser.add_argument("--html", metavar="FILE", help="also write a page that shows what was found; it works offline")
    _model_flags(parser)
    parser.add_common()
    return parser


def search(argv: Sequence[str]) -> None:
    given = parse_flags(search_parser(), argv)
    if given["k"] < 1:
        raise UsageError(f"--k must be at least 1, got {given['k']}")
    page = writable_target(given["html"]) if "html" in given else None
    from nearfar.index import answers, open_index, read_query

    opened = open_index(given["index"])
    query = read_query(
        given["query"], opened, lambda: opened.trained(given.get("moved"), device=given["device"], recipe=given.get("recipe"))
    )
    hits = opened.search(query.vectors, given["k"])
    found = answers(opened, hits)
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
    text = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"
    return [f"{hit['score']:.4f}", str(hit["row"]), *([hit["label"] or ""] if labelled else []), text]

"""Encode data and build an index; add to it, delete from it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any, Literal

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_model_flags, add_on_error_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError

GROUP = "Vectors and search"


def build_index_parser() -> FlagParser:
    """Build the flag parser of `nearfar index`."""
    usage = "RUN --data DATA --out INDEX\n       nearfar index INDEX --add DATA\n       nearfar index INDEX --delete NAME_OR_ROW …"
    about = "Encode data with a run and build an index for `nearfar search`. Add to an index or delete from it."
    parser = FlagParser("nearfar index", usage, about)
    parser.add_argument("run", metavar="RUN", help="run folder; with --add and --delete: the index to change")
    parser.add_argument("--data", metavar="DATA", help="data, as in `nearfar fit --data`")
    parser.add_argument("--out", metavar="INDEX", help="output folder")
    parser.add_argument("--store", metavar="STORE", help="Milvus store instead of --out: file.db (milvus-lite) or http://host:19530")
    parser.add_argument(
        "--index-type",
        default="auto",
        **get_argparse_options(Literal["auto", "exact", "hnsw", "ivf"]),
        help="exact: compare with all vectors; hnsw: walk a graph; ivf: search some cells. Default: auto, by the number of vectors.",
    )
    parser.add_argument(
        "--metric",
        default="cosine",
        **get_argparse_options(Literal["cosine", "dot", "l2"]),
        help="similarity or distance. Default: cosine.",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing index")
    parser.add_argument("--add", metavar="DATA", help="encode these data with the index's run and add them")
    parser.add_argument("--delete", metavar="NAME_OR_ROW", nargs="+", help="delete samples by row (17, row:17) or name (cat.png, name:17)")
    add_on_error_flag(parser)
    add_model_flags(parser)
    parser.add_common_flags()
    return parser


def run(argv: Sequence[str]) -> None:
    """Run `nearfar index`."""
    given = parse_flags(build_index_parser(), argv)
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
        raise UsageError(f"--add and --delete change an existing index: leave out {', '.join(others)}")


def _check_build(given: dict[str, Any]) -> None:
    if "data" not in given:
        raise UsageError("--data is missing: what to index, as `nearfar fit --data` takes it")
    if ("out" in given) == ("store" in given):
        raise UsageError("give --out INDEX (a folder) or --store STORE (Milvus), one of them")
    if "moved" in given:
        raise UsageError("--run is for an existing index: a new one is built with RUN")


def _build(given: dict[str, Any]) -> None:
    from nearfar.api.search import index_data
    from nearfar.index.milvus_address import is_milvus_store

    target = given.get("out") or given["store"]
    if is_milvus_store(target) != ("store" in given):
        kinds = "--store names file.db or http://host:19530", "--out names a folder, not a .db or an address: use --store"
        raise UsageError(f"{target!r}: {kinds['out' in given]}")
    built = index_data(
        given["run"],
        given["data"],
        target,
        **{name: given[name] for name in ("metric", "index_type", "device")},
        overwrite=given.get("overwrite", False),
        recipe=given.get("recipe"),
        on_error=given.get("on_error"),
        progress=terminal.show_progress("embedding", given["quiet"]),
    )
    print(f"{built.location}: {len(built):,} vectors of {built.dim}, {built.index_type}, {built.metric}")
    if not given["quiet"]:
        print(f"Next: `nearfar search {shlex.quote(target)} row:0`", file=sys.stderr)


def _change(given: dict[str, Any]) -> None:
    from nearfar.api.search import add_data, load_index_model
    from nearfar.index import open_index

    opened = open_index(given["run"])
    if "delete" in given:
        rows = opened.delete(given["delete"])
        print(f"{opened.location}: {len(rows):,} deleted, {len(opened):,} left")
        return
    model = load_index_model(opened, given.get("moved"), device=given["device"], recipe=given.get("recipe"))
    rows = add_data(
        opened, given["add"], model.with_on_error(given.get("on_error")), progress=terminal.show_progress("embedding", given["quiet"])
    )
    print(f"{opened.location}: {len(rows):,} added as rows {rows[0]} to {rows[-1]}, {len(opened):,} in all")

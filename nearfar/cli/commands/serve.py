"""Embed and search over HTTP, and explore the embedding in a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from nearfar.cli import terminal
from nearfar.cli.common_flags import add_device_flag, add_recipe_flag, parse_flags
from nearfar.cli.flags import FlagParser, get_argparse_options
from nearfar.core import UsageError
from nearfar.server.lifecycle import bind_socket, check_required_packages, open_app, serve_until_signal

GROUP = "Vectors and search"
TOKEN_VARIABLE = "NEARFAR_TOKEN"


def run(argv: Sequence[str]) -> None:
    """Run `nearfar serve`."""
    parser = FlagParser(
        "nearfar serve",
        "RUN_OR_INDEX [--port PORT]",
        "Embed and search over HTTP, and explore in a browser: / is the page, /docs the API. Ctrl-C stops it.",
    )
    parser.add_argument("path", metavar="RUN_OR_INDEX", help="run folder or index folder")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on. Default: 127.0.0.1, this machine only.")
    parser.add_argument("--port", default=8000, **get_argparse_options(int), help="port; 0 takes a free one. Default: 8000.")
    parser.add_argument("--data", metavar="DATA", help="data to search and show. Default: the data of the run.")
    parser.add_argument("--runs", metavar="FOLDER", help="folder of runs to compare with. Default: the folder that holds the run.")
    parser.add_argument("--run", metavar="RUN", help="folder of the index's run, if it was moved")
    parser.add_argument(
        "--map", default="auto", metavar="NAME", help="projection of the map: pacmap, tsne, umap, pca or auto. Default: auto."
    )
    parser.add_argument(
        "--token", metavar="TEXT", help=f"token that every request must send. Safer: set the environment variable {TOKEN_VARIABLE}."
    )
    parser.add_argument(
        "--timeout",
        default=30.0,
        **get_argparse_options(float),
        help="seconds a request may take to arrive and to be answered. Default: 30.",
    )
    add_device_flag(parser)
    add_recipe_flag(parser)
    parser.add_common_flags()
    given = parse_flags(parser, argv)
    quiet = given["quiet"]
    check_required_packages()
    from nearfar.server.explorer.maps import resolve_map_method

    resolve_map_method(given["map"])
    if not 0 < given["timeout"] < float("inf"):
        raise UsageError(f"--timeout {given['timeout']:g}: a number of seconds above 0")
    token = given.get("token") or os.environ.get(TOKEN_VARIABLE) or None
    from nearfar.server.guard import is_loopback

    local = is_loopback(given["host"])
    if not local and token is None:
        raise UsageError(f"--host {given['host']} can be reached from other machines: set a token ({TOKEN_VARIABLE}, or --token)")
    listening = bind_socket(given["host"], given["port"])
    app, stop = open_app(given, token, local, terminal.show_progress("embedding", quiet))
    listening.listen(512)  # clients may connect as soon as the next line is printed
    host, port = listening.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    try:
        serve_until_signal(app, listening, given["timeout"])
    finally:
        stop()
    if not quiet:
        print("nearfar: stopped; every request was answered", file=sys.stderr)

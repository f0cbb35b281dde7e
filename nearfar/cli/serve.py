"""`nearfar serve RUN_OR_INDEX`: opens it, listens, and stops when it is told to, after the last answer."""

from __future__ import annotations

import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearfar.cli import terminal
from nearfar.cli.commands import add_device, add_own_recipe, parse_flags
from nearfar.cli.flags import Parser, value_of
from nearfar.core import UsageError
from nearfar.core.errors import MissingExtra

TOKEN = "NEARFAR_TOKEN"
NEEDED = {"fastapi": "fastapi", "uvicorn": "uvicorn", "multipart": "python-multipart", "faiss": "faiss-cpu", "plotly": "plotly"}
GRACE = 30
"""Seconds that requests in flight are waited for after the signal to stop."""


def serve(argv: Sequence[str]) -> None:
    parser = Parser(
        "nearfar serve",
        "RUN_OR_INDEX [--port PORT]",
        "Embed and search over HTTP, and explore in a browser: / is the page, /docs the API. Ctrl-C stops it.",
    )
    parser.add_argument("path", metavar="RUN_OR_INDEX", help="a folder that `nearfar fit` or `nearfar index` made")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on. Default: 127.0.0.1, this machine only.")
    parser.add_argument("--port", default=8000, **value_of(int), help="0 takes a free one. Default: 8000.")
    parser.add_argument("--data", metavar="DATA", help="what is searched and shown. Default: the data of the run.")
    parser.add_argument("--runs", metavar="FOLDER", help="runs to compare with. Default: those beside the run.")
    parser.add_argument("--run", metavar="RUN", help="of an index: where its run lies now, if it was moved")
    parser.add_argument("--map", default="auto", metavar="NAME", help="pacmap, tsne, umap, pca or auto. Default: auto.")
    parser.add_argument("--token", metavar="TEXT", help=f"only who sends it is answered. Better: the environment variable {TOKEN}.")
    parser.add_argument(
        "--timeout", default=30.0, **value_of(float), help="seconds a request may take to arrive, and its answer to be made. Default: 30."
    )
    add_device(parser)
    add_own_recipe(parser)
    parser.add_common()
    given = parse_flags(parser, argv)
    quiet = given["quiet"]
    require()
    from nearfar.server.explorer.maps import check

    check(given["map"])
    if not 0 < given["timeout"] < float("inf"):
        raise UsageError(f"--timeout {given['timeout']:g}: a number of seconds above 0")
    token = given.get("token") or os.environ.get(TOKEN) or None
    from nearfar.server.guard import is_loopback

    local = is_loopback(given["host"])
    if not local and token is None:
        raise UsageError(f"--host {given['host']} can be reached from other machines: set a token ({TOKEN}, or --token)")
    listening = _listen(given["host"], given["port"])
    app, stop = open_app(given, token, local, terminal.progress("embedding", quiet))
    listening.listen(512)  # whoever reads the next line may connect at once
    host, port = listening.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    try:
        _run(app, listening, given["timeout"])
    finally:
        stop()
    if not quiet:
        print("nearfar: stopped; every request was answered", file=sys.stderr)


def require() -> None:
    """What a server needs beyond the core."""
    from importlib.util import find_spec

    for module, package in NEEDED.items():
        try:
            found = find_spec(module)
        except ValueError:  # an import that was blocked leaves None behind
            found = None
        if found is None:
            raise MissingExtra(package, "serve", "`nearfar serve`")


def open_app(given: dict[str, Any], token: str | None, local: bool, progress: Any) -> tuple[Any, Callable[[], None]]:
    """The application, and what ends it."""
    from PIL import Image

    from nearfar.server.app import build_app
    from nearfar.server.explorer.routes import add_explorer
    from nearfar.server.limits import Limits
    from nearfar.server.service import Service

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # larger images than the limit are refused anyway
    collection = open_collection(given, progress)
    service = Service(collection, Limits(seconds=given["timeout"]))
    app = build_app(service, token, local)
    own = collection.trained.folder.path if collection.trained and collection.trained.folder else None
    runs = Path(given["runs"]) if "runs" in given else own.parent if own else None
    end = add_explorer(app, service, runs, given["map"])

    def stop() -> None:
        end()
        service.worker.stop()

    return app, stop


def open_collection(given: dict[str, Any], progress: Any) -> Any:
    from nearfar.index.milvus_address import is_store
    from nearfar.server.collection import IndexCollection, RunCollection
    from nearfar.train.model import load

    path = Path(given["path"])
    if is_store(given["path"]) and not path.is_dir():
        raise UsageError(
            f"{given['path']} is a Milvus store, which is not served: serve its run, or an index in a folder (`nearfar index --out`)"
        )
    if (path / "config.json").exists() or not (path / "manifest.json").exists():
        return RunCollection(load(path, given["device"], given.get("recipe")), given.get("data"), progress)
    from nearfar.index import open_index

    if "data" in given:
        raise UsageError("--data is for runs: an index has its own")
    index = open_index(path)
    trained = index.trained(given.get("run"), device=given["device"], recipe=given.get("recipe")) if index.model else None
    return IndexCollection(index, trained)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise UsageError(f"--port is a number from 0 (any that is free) to 65535, got {port}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as e:
        raise UsageError(f"cannot listen on {host}, port {port}: {getattr(e, 'strerror', None) or e}. --port 0 takes a free one") from e
    return listening


def _run(app: Any, listening: socket.socket, seconds: float) -> None:
    """Until SIGTERM or SIGINT; uvicorn lets requests in flight end, and sends itself the signal again, which then means nothing."""
    import uvicorn

    from nearfar.server.header_timeout import punctual

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=15, timeout_graceful_shutdown=GRACE,
        limit_concurrency=512, backlog=512, ws="none", lifespan="off", http=punctual(seconds),
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])

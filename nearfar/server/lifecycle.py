"""Lifecycle of the server: open the collection, listen, and stop after the last response."""

from __future__ import annotations

import signal
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearfar.core import UsageError
from nearfar.core.errors import MissingExtra

REQUIRED_PACKAGES = {
    "fastapi": "fastapi", "uvicorn": "uvicorn", "multipart": "python-multipart", "faiss": "faiss-cpu", "plotly": "plotly",
    "prometheus_client": "prometheus-client",
}  # fmt: skip
"""Packages that the server needs, by module."""
SHUTDOWN_SECONDS = 30
"""Seconds that active requests may take after the stop signal."""


def check_required_packages() -> None:
    """Raise if a package that the server needs is missing."""
    from importlib.util import find_spec

    for module, package in REQUIRED_PACKAGES.items():
        try:
            found = find_spec(module)
        except ValueError:  # blocked imports leave None in sys.modules
            found = None
        if found is None:
            raise MissingExtra(package, "serve", "`nearfar serve`")


def open_app(flags: dict[str, Any], token: str | None, loopback_only: bool, progress: Any) -> tuple[Any, Callable[[], None]]:
    """Return the application and the function that stops its background work."""
    from PIL import Image

    from nearfar.server.app import build_app
    from nearfar.server.explorer.page_data import Explorer
    from nearfar.server.limits import Limits
    from nearfar.server.service import Service

    # Images above the limit are rejected anyway.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    collection = open_collection(flags, progress)
    service = Service(collection, Limits(timeout_seconds=flags["timeout"]))
    own = collection.model.run_folder.path if collection.model and collection.model.run_folder else None
    runs = Path(flags["runs"]) if "runs" in flags else own.parent if own else None
    explorer = Explorer(service, runs, flags["map"])
    app = build_app(service, token, loopback_only, explorer)

    def stop() -> None:
        explorer.stop()
        service.worker.stop()

    return app, stop


def open_collection(flags: dict[str, Any], progress: Any) -> Any:
    """Open the run or index that the flags name."""
    from nearfar.api.load import load
    from nearfar.api.search import load_index_model
    from nearfar.index.milvus_address import is_milvus_store
    from nearfar.server.collection import IndexCollection, RunCollection

    path = Path(flags["path"])
    if is_milvus_store(flags["path"]) and not path.is_dir():
        raise UsageError(
            f"{flags['path']} is a Milvus store, which is not served: serve its run, or an index in a folder (`nearfar index --out`)"
        )
    if (path / "config.json").exists() or not (path / "manifest.json").exists():
        return RunCollection(load(path, flags["device"], flags.get("recipe")), flags.get("data"), progress)
    from nearfar.index import open_index

    if "data" in flags:
        raise UsageError("--data is for runs: an index has its own")
    index = open_index(path)
    model = load_index_model(index, flags.get("run"), device=flags["device"], recipe=flags.get("recipe")) if index.model_identity else None
    return IndexCollection(index, model)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to host and port.

    Port 0 takes a free port.
    """
    if not 0 <= port <= 65_535:
        raise UsageError(f"--port must be a number from 0 (any free port) to 65535, got {port}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as e:
        raise UsageError(f"cannot listen on {host}, port {port}: {getattr(e, 'strerror', None) or e}. --port 0 uses a free port") from e
    return listening


def serve_until_signal(app: Any, listening_socket: socket.socket, header_seconds: float) -> None:
    """Serve until SIGTERM or SIGINT.

    uvicorn finishes active requests and then sends itself the signal again, which has no effect.
    """
    import uvicorn

    from nearfar.server.header_timeout import build_timeout_protocol

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=15, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=512, backlog=512, ws="none", lifespan="off", http=build_timeout_protocol(header_seconds),
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening_socket])

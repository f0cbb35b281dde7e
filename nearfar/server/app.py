"""Application of the server: middleware, error handlers and the routers of two folders."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from fastapi import FastAPI

from nearfar.server import routes
from nearfar.server.error_handlers import add_error_handlers
from nearfar.server.explorer import routes as explorer_routes
from nearfar.server.explorer.page_data import Explorer
from nearfar.server.guard import GuardMiddleware
from nearfar.server.metrics import MetricsMiddleware
from nearfar.server.openapi import OPENAPI_TAGS
from nearfar.server.service import Service
from nearfar.version import __version__


def build_app(service: Service, token: str | None = None, loopback_only: bool = True, explorer: Explorer | None = None) -> FastAPI:
    """Build the application.

    Args:
        service: the service behind the paths.
        token: token that clients must send, or None.
        loopback_only: the server listens on a loopback address. Requests for other hosts are rejected then,
            because they indicate an attack.
        explorer: data of the explorer page. None leaves the page out.
    """
    app = FastAPI(title="nearfar", version=__version__, docs_url=None, redoc_url=None, openapi_tags=OPENAPI_TAGS)
    app.state.service, app.state.token, app.state.explorer = service, token, explorer
    add_error_handlers(app)
    _include_routers(app, routes)
    if explorer is not None:
        _include_routers(app, explorer_routes)
    app.add_middleware(GuardMiddleware, limits=service.limits, token=token, loopback_only=loopback_only)
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    return app


def _include_routers(app: FastAPI, package: ModuleType) -> None:
    """Include the router of every file in the folder of a package."""
    for file in pkgutil.iter_modules(package.__path__):
        app.include_router(import_module(f"{package.__name__}.{file.name}").router)

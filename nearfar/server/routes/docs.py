"""API documentation without network access: Swagger UI from the files of a Python package.

The paths exist only if the package fastapi_offline is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

SWAGGER_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")
DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nearfar: the API</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/docs/swagger-ui.css"></head>
<body><div id="swagger"></div><script src="/static/docs/swagger-ui-bundle.js"></script>
<script src="/static/docs/begin.js"></script></body></html>
"""
DOCS_SCRIPT = 'SwaggerUIBundle({ url: "/openapi.json", dom_id: "#swagger", deepLinking: true, validatorUrl: null })\n'


def build_docs_router() -> APIRouter:
    """Build the router of the path /docs, empty if the package is missing."""
    router = APIRouter(include_in_schema=False)
    spec = find_spec("fastapi_offline")
    if spec is None or spec.origin is None:
        return router
    folder = Path(spec.origin).parent / "static"

    @router.get("/docs")
    async def docs() -> HTMLResponse:
        return HTMLResponse(DOCS_PAGE)

    @router.get("/static/docs/begin.js")
    async def begin() -> Response:
        return Response(DOCS_SCRIPT, media_type="text/javascript")

    for name in SWAGGER_FILES:
        router.add_api_route(f"/static/docs/{name}", _file(folder / name))
    return router


def _file(path: Path):
    async def answer() -> FileResponse:
        return FileResponse(path)

    return answer


router = build_docs_router()

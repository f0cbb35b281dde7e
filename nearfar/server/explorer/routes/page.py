"""Page of the explorer with its scripts and styles.

Only files with a known name are served, not other files of the package.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from nearfar.reports.style import STYLE_SHEET
from nearfar.server.explorer.response_parts import CACHE_HEADERS
from nearfar.server.limits import RequestError

EXPLORER_FOLDER = Path(__file__).parent.parent
STATIC_FILES = frozenset(path.name for path in EXPLORER_FOLDER.iterdir() if path.suffix in (".js", ".css"))
router = APIRouter(include_in_schema=False)


@router.get("/")
def page() -> FileResponse:
    return FileResponse(EXPLORER_FOLDER / "index.html")


@router.get("/static/explorer/{name}")
def script(name: str) -> FileResponse:
    if name not in STATIC_FILES:
        raise RequestError(404, "Not Found")
    return FileResponse(EXPLORER_FOLDER / name)


@router.get("/static/style.css")
def style() -> Response:
    return Response(STYLE_SHEET, media_type="text/css")


@router.get("/static/plotly.js")
def plotly() -> FileResponse:
    """Return plotly.js from the installed Python package.

    No other server is needed.
    """
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return FileResponse(Path(spec.origin).parent / "package_data" / "plotly.min.js", headers=CACHE_HEADERS)

"""Points of the map: what is shown, where each point lies, and how it is colored."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from nearfar.server.explorer.columns import DEFAULT_CLUSTERS, ColorColumn
from nearfar.server.explorer.maps import list_map_methods
from nearfar.server.explorer.page_data import ExplorerDependency
from nearfar.server.explorer.response_parts import MISSING_RESPONSES, PENDING_RESPONSES, build_array_response
from nearfar.server.explorer.tasks import build_task_response
from nearfar.server.limits import RequestError

router = APIRouter(prefix="/explorer", tags=["explore"])


@router.get("/about")
def about(explorer: ExplorerDependency) -> dict[str, Any]:
    return explorer.describe()


@router.get("/rows")
def rows(explorer: ExplorerDependency) -> Response:
    """Return the row number of each point, uint32."""
    return build_array_response(explorer.collection.rows.astype("<u4"))


@router.get("/map", name="map", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def send_map(explorer: ExplorerDependency, method: str = "auto") -> Response:
    """Return the map, two float32 numbers per point."""
    if method not in ("auto", *list_map_methods()):
        raise RequestError(404, "there is no such map")
    task = explorer.request_map(explorer.map_method if method == "auto" else method)
    return build_task_response(task, lambda points: build_array_response(points.astype("<f4")))


@router.get("/column", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def column(explorer: ExplorerDependency, name: str, k: Annotated[int, Query(ge=2, le=100)] = DEFAULT_CLUSTERS) -> Response:
    """Return one uint32 code or float32 number per point.

    The header X-Column describes a computed column.
    """
    k = min(k, len(explorer.collection))
    return build_task_response(explorer.request_column(name, k), _build_column_response)


def _build_column_response(column: ColorColumn) -> Response:
    answer = build_array_response(column.data)
    if not column.classes:
        answer.headers["X-Column"] = f"{float(column.data.min())},{float(column.data.max())}"
    return answer

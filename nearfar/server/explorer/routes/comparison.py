"""Comparison of the served run with other runs of its folder."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from nearfar.server.explorer.page_data import ExplorerDependency
from nearfar.server.explorer.response_parts import MISSING_RESPONSES, PENDING_RESPONSES, build_array_response
from nearfar.server.explorer.tasks import build_task_response

router = APIRouter(prefix="/explorer", tags=["explore"])


@router.get("/plane", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def plane(explorer: ExplorerDependency) -> Response:
    return build_task_response(explorer.request_run_geometry(), JSONResponse)


@router.get("/compare/map", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def compare_map(explorer: ExplorerDependency, run: str) -> Response:
    """Return the other run's map, two float32 numbers per point."""
    return build_task_response(explorer.request_comparison(run), lambda found: build_array_response(found[0].astype("<f4")))


@router.get("/compare/moved", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def compare_moved(explorer: ExplorerDependency, run: str) -> Response:
    """Return the share of ten neighbors that each point lost, float32.

    The share is NaN for points that were not measured.
    """
    return build_task_response(explorer.request_comparison(run), lambda found: build_array_response(found[1]))

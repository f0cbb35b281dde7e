"""Training of the served run: curves, spectrum, views and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from nearfar.server.collection import RunCollection
from nearfar.server.explorer import training_diagnostics
from nearfar.server.explorer.page_data import Explorer, ExplorerDependency
from nearfar.server.explorer.response_parts import MISSING_RESPONSES, PENDING_RESPONSES
from nearfar.server.explorer.tasks import build_task_response

router = APIRouter(prefix="/explorer", tags=["explore"])


@router.get("/curves")
def curves(explorer: ExplorerDependency) -> dict[str, list[list[float]]]:
    return training_diagnostics.read_curves(explorer.collection.model)


@router.get("/health", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def vectors_health(explorer: ExplorerDependency) -> Response:
    task = explorer.tasks.get_or_start(
        "health", "measuring the spectrum", lambda report: training_diagnostics.compute_diagnostics(explorer.collection)
    )
    return build_task_response(task, JSONResponse)


@router.get("/views", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def views(explorer: ExplorerDependency) -> Response:
    """Return positive pairs of the training."""
    return _build_own_data_response(explorer, "views", "drawing views", training_diagnostics.render_training_views)


@router.get("/findings", responses=MISSING_RESPONSES | PENDING_RESPONSES)
def findings(explorer: ExplorerDependency) -> Response:
    """Return the findings of `nearfar diagnose`."""
    return _build_own_data_response(explorer, "findings", "looking for problems", training_diagnostics.list_findings)


def _build_own_data_response(explorer: Explorer, name: str, description: str, compute: Callable[[Any], Any]) -> Response:
    """Return a result about the run and its own data.

    The result is an empty list for an index, and for a run with other data than its own.
    """
    model, collection = explorer.collection.model, explorer.collection
    if model is None or not isinstance(collection, RunCollection) or not collection.is_own_data:
        return JSONResponse([])
    return build_task_response(explorer.tasks.get_or_start(name, description, lambda report: compute(model)), JSONResponse)

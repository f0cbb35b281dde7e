"""Page of the metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from nearfar.server.dependencies import ServiceDependency

router = APIRouter(tags=["watch"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: ServiceDependency) -> Response:
    """Return counters for Prometheus."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

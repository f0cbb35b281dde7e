"""Nearest rows of texts, images, sounds, vectors and rows."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from nearfar.server.dependencies import ServiceDependency
from nearfar.server.openapi import ERROR_RESPONSES, describe_binary_response, describe_bodies
from nearfar.server.requests import SearchBody, parse_request
from nearfar.server.responses import build_hits_response, check_hit_count

router = APIRouter(tags=["use"])
_K = {"name": "k", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1}, "description": "neighbors of each query"}


class Hit(BaseModel):
    """One neighbor of a query."""

    row: int
    score: float
    name: str | None
    label: str | None
    text: str | None = None


class SearchResponse(BaseModel):
    """Neighbors of each query, nearest first."""

    hits: list[list[Hit]]


@router.post(
    "/search",
    response_model=SearchResponse,
    responses=ERROR_RESPONSES | describe_binary_response("12 bytes a hit: row int64, score float32"),
    openapi_extra=describe_bodies(SearchBody) | {"parameters": [_K]},
)
async def search(request: Request, service: ServiceDependency) -> Response:
    """Return the nearest rows of texts, images, sounds, vectors or rows.

    Vectors may be sent as raw float32 or as a .npy file.
    """
    asked = await parse_request(request, SearchBody, service.limits, service.collection.dim)
    check_hit_count(request, len(asked) * asked.k, service.limits)
    return build_hits_response(request, await service.search(asked), service.collection.describe_rows)

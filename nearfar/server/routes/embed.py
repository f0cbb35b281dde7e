"""Vectors of texts, images, sounds and rows."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from nearfar.server.dependencies import ServiceDependency
from nearfar.server.openapi import ERROR_RESPONSES, describe_binary_response, describe_bodies
from nearfar.server.requests import EmbedBody, parse_request
from nearfar.server.responses import build_vectors_response

router = APIRouter(tags=["use"])


class VectorsResponse(BaseModel):
    """Vectors of all samples of a request."""

    dim: int
    vectors: list[list[float]]


@router.post(
    "/embed",
    response_model=VectorsResponse,
    responses=ERROR_RESPONSES | describe_binary_response("rows of float32"),
    openapi_extra=describe_bodies(EmbedBody),
)
async def embed(request: Request, service: ServiceDependency) -> Response:
    """Return the vectors of texts, images, sounds or rows.

    `Accept: application/x-npy` or `application/octet-stream` selects a binary response.
    """
    asked = await parse_request(request, EmbedBody, service.limits, service.collection.dim)
    return build_vectors_response(request, await service.embed(asked))

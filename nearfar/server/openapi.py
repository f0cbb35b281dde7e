"""Parts of the OpenAPI document that FastAPI cannot derive.

They describe bodies that are parsed by hand, binary responses, and errors.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from nearfar.server.requests import FLOATS_MEDIA_TYPE, FORM_MEDIA_TYPE, JSON_MEDIA_TYPE, NPY_MEDIA_TYPE, EmbedBody, SearchBody


class ErrorResponse(BaseModel):
    """Error with one sentence."""

    error: str


OpenapiResponses = dict[int | str, dict[str, Any]]
"""Descriptions of responses by status."""
ERROR_RESPONSES: OpenapiResponses = {
    status: {"model": ErrorResponse, "description": said}
    for status, said in {
        400: "malformed request", 401: "missing or wrong token", 404: "no such row", 408: "request arrived too slowly",
        413: "larger than the limits", 415: "unsupported body type", 422: "validation failed",
        503: "too many requests", 504: "took too long",
    }.items()
}  # fmt: skip
OPENAPI_TAGS = [
    {"name": "use", "description": "Vectors and neighbors."},
    {"name": "watch", "description": "Is it alive, how busy is it."},
    {"name": "explore", "description": "What the page at / is made from."},
]
_BINARY_CONTENT = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE)}


def describe_bodies(model: type[EmbedBody]) -> dict[str, Any]:
    """Describe the request body in the OpenAPI schema.

    The body is parsed by hand, because it may have several media types.
    """
    upload = {"type": "array", "items": {"type": "string", "format": "binary"}}
    content: dict[str, Any] = {
        JSON_MEDIA_TYPE: {"schema": model.model_json_schema()},
        FORM_MEDIA_TYPE: {"schema": {"type": "object", "properties": {"images": upload, "sounds": upload}}},
    }
    if model is SearchBody:
        content |= _BINARY_CONTENT
    return {"requestBody": {"required": True, "content": content}}


def describe_binary_response(description: str) -> OpenapiResponses:
    """Describe the response with status 200 in both binary formats."""
    return {200: {"description": description, "content": _BINARY_CONTENT}}

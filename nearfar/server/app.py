"""Paths of the server.

Every error is a JSON object with one sentence. Errors show no traceback and no path of this machine.
"""

from __future__ import annotations

import hmac
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from nearfar.server import responses as answer
from nearfar.server.api_docs import add_docs
from nearfar.server.guard import COOKIE_NAME, GuardMiddleware, compute_session_cookie
from nearfar.server.limits import RequestError
from nearfar.server.metrics import MetricsMiddleware
from nearfar.server.requests import (
    FLOATS_MEDIA_TYPE,
    FORM_MEDIA_TYPE,
    JSON_MEDIA_TYPE,
    NPY_MEDIA_TYPE,
    EmbedBody,
    SearchBody,
    parse_request,
)
from nearfar.server.service import Service
from nearfar.version import __version__


class ErrorResponse(BaseModel):
    """Error with one sentence."""

    error: str


class VectorsResponse(BaseModel):
    """Vectors of all samples of a request."""

    dim: int
    vectors: list[list[float]]


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


class HealthResponse(BaseModel):
    """State of the server and size of its collection."""

    status: str
    version: str
    title: str
    modality: str
    rows: int
    dim: int


class SessionRequest(BaseModel):
    """Token that is exchanged for a session cookie."""

    token: str = Field(max_length=1024)


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
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


def build_app(service: Service, token: str | None = None, loopback_only: bool = True) -> FastAPI:
    """Build the application.

    Args:
        service: the service behind the paths.
        token: token that clients must send, or None.
        loopback_only: the server listens on a loopback address. Requests for other hosts are rejected then,
            because they indicate an attack.
    """
    app = FastAPI(title="nearfar", version=__version__, docs_url=None, redoc_url=None, openapi_tags=OPENAPI_TAGS)
    app.state.service = service
    _add_errors(app)
    _add_use(app, service)
    _add_watch(app, service, token)
    add_docs(app)
    app.add_middleware(GuardMiddleware, limits=service.limits, token=token, loopback_only=loopback_only)
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    return app


def _add_use(app: FastAPI, service: Service) -> None:
    @app.post(
        "/embed",
        tags=["use"],
        response_model=VectorsResponse,
        responses=ERROR_RESPONSES | _binary("rows of float32"),
        openapi_extra=_bodies(EmbedBody),
    )
    async def embed(request: Request) -> Response:
        """Return the vectors of texts, images, sounds or rows.

        `Accept: application/x-npy` or `application/octet-stream` selects a binary response.
        """
        asked = await parse_request(request, EmbedBody, service.limits, service.collection.dim)
        return answer.build_vectors_response(request, await service.embed(asked))

    @app.post(
        "/search", tags=["use"], response_model=SearchResponse,
        responses=ERROR_RESPONSES | _binary("12 bytes a hit: row int64, score float32"),
        openapi_extra=_bodies(SearchBody) | {"parameters": [_K]},
    )  # fmt: skip
    async def search(request: Request) -> Response:
        """Return the nearest rows of texts, images, sounds, vectors or rows.

        Vectors may be sent as raw float32 or as a .npy file.
        """
        asked = await parse_request(request, SearchBody, service.limits, service.collection.dim)
        answer.check_hit_count(request, len(asked) * asked.k, service.limits)
        return answer.build_hits_response(request, await service.search(asked), service.collection.describe_rows)


_K = {"name": "k", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1}, "description": "neighbors of each query"}


def _add_watch(app: FastAPI, service: Service, token: str | None) -> None:
    collection = service.collection

    @app.get("/health", tags=["watch"], response_model=HealthResponse)
    async def health() -> dict[str, Any]:
        about = {"title": collection.title, "modality": collection.modality, "rows": len(collection), "dim": collection.dim}
        return {"status": "ok", "version": __version__, **(about if token is None else about | {"title": "nearfar"})}

    @app.get("/metrics", tags=["watch"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counters for Prometheus."""
        text = service.metrics.to_prometheus_text(service.worker.jobs.qsize(), len(collection))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @app.post("/session", tags=["watch"], status_code=204, responses={401: ERROR_RESPONSES[401], 422: ERROR_RESPONSES[422]})
    async def session(given: SessionRequest) -> Response:
        """Exchange the token for a browser cookie."""
        if token is not None and not hmac.compare_digest(given.token.encode("utf-8", "replace"), token.encode()):
            raise RequestError(401, "this is not the token")
        done = Response(status_code=204)
        if token is not None:
            done.set_cookie(COOKIE_NAME, compute_session_cookie(token), httponly=True, samesite="strict")
        return done


def _bodies(model: type[EmbedBody]) -> dict[str, Any]:
    """Describe the request body in the OpenAPI schema.

    The body is parsed by hand, because it may have several media types.
    """
    upload = {"type": "array", "items": {"type": "string", "format": "binary"}}
    content: dict[str, Any] = {
        JSON_MEDIA_TYPE: {"schema": model.model_json_schema()},
        FORM_MEDIA_TYPE: {"schema": {"type": "object", "properties": {"images": upload, "sounds": upload}}},
    }
    if model is SearchBody:
        content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE)}
    return {"requestBody": {"required": True, "content": content}}


def _binary(what: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: {
            "description": what,
            "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE)},
        }
    }


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(request: Request, e: RequestError) -> JSONResponse:
        return JSONResponse({"error": e.message}, e.status, headers=e.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, e: RequestValidationError) -> JSONResponse:
        first = e.errors()[0]
        return JSONResponse({"error": f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"}, 422)

    @app.exception_handler(HTTPException)
    async def known(request: Request, e: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(e.detail)}, e.status_code, headers=e.headers)

    @app.exception_handler(Exception)
    async def unknown(request: Request, e: Exception) -> JSONResponse:
        return JSONResponse({"error": "something went wrong inside the server; its log says what"}, 500)

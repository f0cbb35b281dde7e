"""One sample of the collection: its description, its image or sound, and its neighbors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from nearfar.server.dependencies import ServiceDependency
from nearfar.server.explorer.response_parts import CACHE_HEADERS, MISSING_RESPONSES
from nearfar.server.limits import RequestError
from nearfar.server.requests import ParsedRequest

router = APIRouter(prefix="/explorer", tags=["explore"])


@router.get("/sample/{row}", responses=MISSING_RESPONSES)
def item(row: int, service: ServiceDependency) -> dict[str, Any]:
    return service.collection.describe_rows([service.check_row(row)])[0]


@router.get("/picture/{row}", responses=MISSING_RESPONSES)
def picture(row: int, service: ServiceDependency) -> Response:
    return _build_file_response(service.collection.get_png(service.check_row(row)), "image/png")


@router.get("/sound/{row}", responses=MISSING_RESPONSES)
def sound(row: int, service: ServiceDependency) -> Response:
    return _build_file_response(service.collection.get_wav(service.check_row(row)), "audio/wav")


@router.get("/neighbors/{row}", responses=MISSING_RESPONSES)
async def neighbors(row: int, service: ServiceDependency, k: Annotated[int, Query(ge=1, le=100)] = 12) -> dict[str, Any]:
    """Return a sample and its nearest neighbors with scores."""
    own, collection = service.check_row(row), service.collection
    found = await service.search(ParsedRequest("rows", [own], k=min(k + 1, len(collection))))
    pairs = zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True)
    others = [(r, s) for r, s in pairs if r != own][:k]
    items = collection.describe_rows([own, *(r for r, _ in others)])
    return {"sample": items[0], "neighbors": [i | {"score": s} for i, (_, s) in zip(items[1:], others, strict=True)]}


def _build_file_response(data: bytes | None, media_type: str) -> Response:
    if data is None:
        raise RequestError(404, "there is nothing of this kind for the row")
    return Response(data, media_type=media_type, headers=CACHE_HEADERS)

"""State of the server, for which no token is needed.

A server with a token does not tell the title of its data.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from nearfar.server.dependencies import ServiceDependency, TokenDependency
from nearfar.version import __version__

router = APIRouter(tags=["watch"])


class HealthResponse(BaseModel):
    """State of the server and size of its collection."""

    status: str
    version: str
    title: str
    modality: str
    rows: int
    dim: int


@router.get("/health", response_model=HealthResponse)
async def health(service: ServiceDependency, token: TokenDependency) -> dict[str, Any]:
    collection = service.collection
    return {
        "status": "ok",
        "version": __version__,
        "title": collection.title if token is None else "nearfar",
        "modality": collection.modality,
        "rows": len(collection),
        "dim": collection.dim,
    }

"""Dependencies of the routes: objects that all requests of an application share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from nearfar.server.service import Service


async def get_service(request: Request) -> Service:
    """Return the service of the application."""
    return request.app.state.service


async def get_token(request: Request) -> str | None:
    """Return the token that clients must send, or None."""
    return request.app.state.token


ServiceDependency = Annotated[Service, Depends(get_service)]
TokenDependency = Annotated[str | None, Depends(get_token)]

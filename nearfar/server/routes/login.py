"""Exchange of the token for a session cookie, for browsers."""

from __future__ import annotations

import hmac

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from nearfar.server.dependencies import TokenDependency
from nearfar.server.guard import COOKIE_NAME, compute_session_cookie
from nearfar.server.limits import RequestError
from nearfar.server.openapi import ERROR_RESPONSES

router = APIRouter(tags=["watch"])


class SessionRequest(BaseModel):
    """Token that is exchanged for a session cookie."""

    token: str = Field(max_length=1024)


@router.post("/session", status_code=204, responses={401: ERROR_RESPONSES[401], 422: ERROR_RESPONSES[422]})
async def session(given: SessionRequest, token: TokenDependency) -> Response:
    """Exchange the token for a browser cookie."""
    if token is not None and not hmac.compare_digest(given.token.encode("utf-8", "replace"), token.encode()):
        raise RequestError(401, "this is not the token")
    done = Response(status_code=204)
    if token is not None:
        done.set_cookie(COOKIE_NAME, compute_session_cookie(token), httponly=True, samesite="strict")
    return done

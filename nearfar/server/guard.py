"""Checks before every path: access, request size and arrival time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearfar.server.limits import Limits, RequestError

COOKIE_NAME = "nearfar"
PUBLIC_PATHS = ("/", "/health", "/session", "/favicon.ico")
"""Paths without data. The page itself asks for the token."""
SECURITY_HEADERS = {
    b"content-security-policy": b"default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data: blob:; media-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}
"""Headers of every response. Pages may load only from this server. The charting library creates WebGL
programs with `Function`."""


def compute_session_cookie(token: str) -> str:
    """Return the cookie value that stands for the token."""
    return hmac.new(token.encode(), b"nearfar session", hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Return True if the host is localhost or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class GuardMiddleware:
    """Middleware that checks host, token and size before the application sees a request."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, loopback_only: bool):
        self.app, self.limits, self.token, self.loopback_only = app, limits, token, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        if refusal := self._find_refusal(scope["path"], headers):
            answer = JSONResponse({"error": refusal.message}, refusal.status, headers=refusal.headers)
            return await answer(scope, receive, _with_headers(send))
        await self.app(scope, self._limit_body(receive), _with_headers(send))

    def _find_refusal(self, path: str, headers: Headers) -> RequestError | None:
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        # DNS rebinding: a foreign host name can point to this machine.
        if self.loopback_only and not is_loopback(host):
            return RequestError(403, "this server answers to localhost only")
        if self.token and path not in PUBLIC_PATHS and not path.startswith("/static/") and not self._is_authorized(headers, self.token):
            return RequestError(401, "a token is needed: Authorization: Bearer TOKEN")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return RequestError(400, "Content-Length is not a number")
        if int(length[:20]) > self.limits.body_bytes:
            return RequestError(413, f"the request has {int(length[:20]):,} bytes; {self.limits.body_bytes:,} are allowed")
        return None

    def _is_authorized(self, headers: Headers, token: str) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode()):
            return True
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE_NAME)
        except CookieError:
            return False
        return kept is not None and hmac.compare_digest(kept.value.encode(), compute_session_cookie(token).encode())

    def _limit_body(self, receive: Receive) -> Receive:
        """Limit the size and the arrival time of the body."""
        taken, ends = 0, asyncio.get_running_loop().time() + self.limits.timeout_seconds

        async def bounded() -> Message:
            nonlocal taken
            if taken < 0:  # the body is complete; the end of the connection has no time limit
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(ends - asyncio.get_running_loop().time(), 0.001))
            except TimeoutError:
                raise RequestError(408, f"the request did not arrive within {self.limits.timeout_seconds:g} seconds") from None
            taken += len(message.get("body", b""))
            if taken > self.limits.body_bytes:
                raise RequestError(413, f"the request has more than {self.limits.body_bytes:,} bytes, the limit of this server")
            taken = taken if message.get("more_body") else -1
            return message

        return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *SECURITY_HEADERS.items()]
        await send(message)

    return sending

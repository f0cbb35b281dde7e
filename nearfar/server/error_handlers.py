"""Handlers of errors. Every error is a JSON object with one sentence.

Errors show no traceback and no path of this machine.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from nearfar.server.limits import RequestError


def add_error_handlers(app: FastAPI) -> None:
    """Add the handlers to an application."""

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

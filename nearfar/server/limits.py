"""Limits of one request, and the error for requests beyond them."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Larger requests are rejected before they cost memory or time.
    """

    body_bytes: int = 32 << 20
    """Bytes of a request."""
    image_pixels: int = 40_000_000
    """Pixels of an uploaded image, as its header states them."""
    sound_seconds: float = 600.0
    """Length of an uploaded sound in seconds."""
    text_characters: int = 20_000
    """Characters of a text."""
    samples: int = 4096
    """Texts, images, sounds, vectors or row numbers in one request."""
    k: int = 1000
    """Neighbors of one query."""
    json_hits: int = 100_000
    """Hits in one JSON response. Binary responses are small enough for all hits."""
    timeout_seconds: float = 30.0
    """Seconds for the header, for the body, and from the last byte to the response."""
    queued_requests: int = 1024
    """Requests that may wait for the worker. Further requests get status 503."""


ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 413: {"Connection": "close"}, 503: {"Retry-After": "1"}}
"""Headers of errors. An unread rest of a body must not be read as another request."""


class RequestError(HTTPException):
    """Error that ends a request with an HTTP status and one sentence.

    FastAPI passes HTTPExceptions through while it reads a request.
    """

    def __init__(self, status: int, message: str):
        super().__init__(status, message, ERROR_HEADERS.get(status))
        self.status = status
        self.message = message

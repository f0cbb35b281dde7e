"""How much one request may ask for, and what is said to one that asks for more."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException


@dataclass(frozen=True)
class Limits:
    """Bounds of a request. Whatever lies beyond them is refused before it costs memory or time."""

    body_bytes: int = 32 << 20
    """Bytes of a request."""
    image_pixels: int = 40_000_000
    """Pixels of an uploaded image, as its header states them."""
    sound_seconds: float = 600.0
    """Length of an uploaded sound."""
    text_characters: int = 20_000
    """Characters of a text."""
    samples: int = 4096
    """Texts, images, sounds, vectors or row numbers in one request."""
    k: int = 1000
    """Neighbours of one query."""
    json_hits: int = 100_000
    """Hits in one JSON answer; binary answers are small enough for all."""
    timeout_seconds: float = 30.0
    """For a request's head to arrive, for its body to arrive, and from its last byte to its answer."""
    queued_requests: int = 1024
    """Requests that may wait for the worker; further ones are told to come back."""


ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 413: {"Connection": "close"}, 503: {"Retry-After": "1"}}
"""Headers of a refusal. Of a body that was not read to its end, the rest must not pass for another request."""


class RequestError(HTTPException):
    """A request that gets an HTTP status and one sentence instead of an answer. FastAPI lets HTTPExceptions through while it reads."""

    def __init__(self, status: int, message: str):
        super().__init__(status, message, ERROR_HEADERS.get(status))
        self.status = status
        self.message = message

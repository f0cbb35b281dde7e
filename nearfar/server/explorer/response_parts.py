"""Responses that several routes of the explorer share."""

from __future__ import annotations

import numpy as np
from fastapi.responses import Response

from nearfar.server.openapi import OpenapiResponses

CACHE_HEADERS = {"Cache-Control": "max-age=3600"}
MISSING_RESPONSES: OpenapiResponses = {
    404: {"description": "no such row, column or run"},
    422: {"description": "not possible with these data"},
}
PENDING_RESPONSES: OpenapiResponses = {202: {"description": "not ready: what is being done, and the share that is done"}}


def build_array_response(values: np.ndarray) -> Response:
    """Return the numbers of an array as bytes."""
    return Response(np.ascontiguousarray(values).tobytes(), media_type="application/octet-stream")

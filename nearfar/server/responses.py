"""Responses as JSON, or in a binary format that `Accept` selects."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from nearfar.server.limits import Limits, RequestError
from nearfar.server.neighbors import SearchHits
from nearfar.server.requests import FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE

HIT_DTYPE = np.dtype([("row", "<i8"), ("score", "<f4")])
"""Hit in a binary response: 12 bytes."""


def build_vectors_response(request: Request, vectors_array: np.ndarray) -> Response:
    """Write (n, d) float32 vectors as JSON, .npy, or raw numbers with a shape header."""
    binary = _build_binary_response(request, vectors_array.astype("<f4"))
    return binary or JSONResponse({"dim": vectors_array.shape[1], "vectors": vectors_array.tolist()})


def check_hit_count(request: Request, count: int, limits: Limits) -> None:
    """Raise before the search if a JSON response would have too many hits.

    Binary responses may have more hits.
    """
    if count > limits.json_hits and not any(kind in request.headers.get("accept", "") for kind in (FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE)):
        raise RequestError(
            413, f"{count:,} hits are too many for JSON; {limits.json_hits:,} are allowed. Accept: {NPY_MEDIA_TYPE} has room for all"
        )


def build_hits_response(request: Request, found: SearchHits, describe_rows: Callable[[np.ndarray], list[dict[str, Any]]]) -> Response:
    """Write (q, k) rows and scores.

    JSON responses also describe the rows.
    """
    table = np.empty(found.rows.shape, dtype=HIT_DTYPE)
    table["row"], table["score"] = found.rows, found.scores
    if binary := _build_binary_response(request, table):
        return binary
    known = {item["row"]: item for item in describe_rows(np.unique(found.rows))}
    listed = [
        [known[row] | {"score": score} for row, score in zip(rows, scores, strict=True)]
        for rows, scores in zip(found.rows.tolist(), found.scores.tolist(), strict=True)
    ]
    return JSONResponse({"hits": listed})


def _build_binary_response(request: Request, table: np.ndarray) -> Response | None:
    accepted = request.headers.get("accept", "")
    if NPY_MEDIA_TYPE in accepted:
        file = io.BytesIO()
        np.save(file, table, allow_pickle=False)
        return Response(file.getvalue(), media_type=NPY_MEDIA_TYPE)
    if FLOATS_MEDIA_TYPE in accepted:
        return Response(table.tobytes(), media_type=FLOATS_MEDIA_TYPE, headers={"X-Shape": ",".join(map(str, table.shape))})
    return None

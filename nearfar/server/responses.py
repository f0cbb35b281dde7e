"""How results are written: JSON, or binary for those who ask for it with `Accept`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from nearfar.server.limits import Limits, Refused
from nearfar.server.neighbors import Found
from nearfar.server.requests import FLOATS, NPY

HIT = np.dtype([("row", "<i8"), ("score", "<f4")])
"""A hit in a binary answer: 12 bytes."""


def vectors(request: Request, found: np.ndarray) -> Response:
    """(n, d) float32: JSON, a .npy file, or bare numbers with their shape in a header."""
    binary = _binary(request, found.astype("<f4"))
    return binary or JSONResponse({"dim": found.shape[1], "vectors": found.tolist()})


def check_size(request: Request, count: int, limits: Limits) -> None:
    """Before anything is searched for: JSON has no room for as many hits as binary answers have."""
    if count > limits.hits and not any(kind in request.headers.get("accept", "") for kind in (FLOATS, NPY)):
        raise Refused(413, f"{count:,} hits are too many for JSON; {limits.hits:,} are allowed. Accept: {NPY} has room for all")


def hits(request: Request, found: Found, items: Callable[[np.ndarray], list[dict[str, Any]]]) -> Response:
    """(q, k) rows and scores; JSON says what the rows are, too."""
    table = np.empty(found.rows.shape, dtype=HIT)
    table["row"], table["score"] = found.rows, found.scores
    if binary := _binary(request, table):
        return binary
    known = {item["row"]: item for item in items(np.unique(found.rows))}
    listed = [
        [known[row] | {"score": score} for row, score in zip(rows, scores, strict=True)]
        for rows, scores in zip(found.rows.tolist(), found.scores.tolist(), strict=True)
    ]
    return JSONResponse({"hits": listed})


def _binary(request: Request, table: np.ndarray) -> Response | None:
    accepted = request.headers.get("accept", "")
    if NPY in accepted:
        file = io.BytesIO()
        np.save(file, table, allow_pickle=False)
        return Response(file.getvalue(), media_type=NPY)
    if FLOATS in accepted:
        return Response(table.tobytes(), media_type=FLOATS, headers={"X-Shape": ",".join(map(str, table.shape))})
    return None

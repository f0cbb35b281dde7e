"""Parser of request bodies: JSON, uploads, or raw float32 vectors.

A body is read completely, checked, and converted to samples or vectors.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile

from nearfar.server.limits import Limits, RequestError

INPUT_TYPES = ("texts", "images", "sounds", "vectors", "rows")
JSON_MEDIA_TYPE, FORM_MEDIA_TYPE, FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE = (
    "application/json",
    "multipart/form-data",
    "application/octet-stream",
    "application/x-npy",
)
FiniteFloat = Annotated[float, Field(allow_inf_nan=False, strict=True)]
WholeNumber = Annotated[int, Field(strict=True)]


class EmbedBody(BaseModel):
    """Body with exactly one of the lists."""

    model_config = ConfigDict(extra="forbid")
    texts: list[str] | None = Field(None, description="for a model of texts or words")
    images: list[str] | None = Field(None, description="image files in base64, for a model of images")
    sounds: list[str] | None = Field(None, description="sound files in base64, for a model of sounds")
    rows: list[WholeNumber] | None = Field(None, description="numbers of rows that are served")


class SearchBody(EmbedBody):
    """Body with exactly one of the lists, and the number of neighbors of each query."""

    vectors: list[list[FiniteFloat]] | None = Field(None, description="vectors of the model's width")
    k: WholeNumber = Field(10, ge=1)


@dataclass
class ParsedRequest:
    """Parsed request.

    Parsing needs no model.
    """

    input_type: str
    samples: list[Any] = field(default_factory=list)
    """Strings, bytes of files, or row numbers."""
    vectors: np.ndarray | None = None
    k: int = 10

    def __len__(self) -> int:
        return len(self.samples) if self.vectors is None else len(self.vectors)


async def parse_request(request: Request, body: type[EmbedBody], limits: Limits, dim: int) -> ParsedRequest:
    """Parse a request.

    `k` may also be a query parameter.

    Args:
        request: the HTTP request.
        body: expected schema of JSON bodies. `SearchBody` also allows raw vectors.
        limits: limits of a request.
        dim: width of the vectors.

    Raises:
        RequestError: if the request is malformed or beyond the limits.
    """
    sent = request.headers.get("content-type", JSON_MEDIA_TYPE).split(";")[0].strip().lower()
    searching = issubclass(body, SearchBody)
    if sent == JSON_MEDIA_TYPE:
        asked = _parse_json(await request.body(), body)
    elif sent == FORM_MEDIA_TYPE:
        asked = await _parse_form(request, limits, searching)
    elif sent in (FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE) and searching:
        asked = ParsedRequest(
            "vectors", vectors=_parse_floats(await request.body(), dim) if sent == FLOATS_MEDIA_TYPE else _parse_npy(await request.body())
        )
    else:
        known = ", ".join(
            (JSON_MEDIA_TYPE, FORM_MEDIA_TYPE, FLOATS_MEDIA_TYPE, NPY_MEDIA_TYPE) if searching else (JSON_MEDIA_TYPE, FORM_MEDIA_TYPE)
        )
        raise RequestError(415, f"this body type is not supported; send one of {known}")
    if searching:
        asked.k = _parse_k(request.query_params.get("k"), asked.k, limits)
    _check_limits(asked, limits, dim)
    return asked


def _parse_json(data: bytes, body: type[EmbedBody]) -> ParsedRequest:
    try:
        said = body.model_validate_json(data)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise RequestError(422, f"{where}: {first['msg']}") from None
    given = [kind for kind in INPUT_TYPES if getattr(said, kind, None) is not None]
    if len(given) != 1:
        allowed = [kind for kind in INPUT_TYPES if kind in body.model_fields]
        raise RequestError(422, f"give exactly one of {', '.join(allowed)}")
    kind = given[0]
    values = getattr(said, kind)
    asked = ParsedRequest(kind, k=getattr(said, "k", 10))
    if kind == "vectors":
        asked.vectors = _parse_vectors(values)
    else:
        asked.samples = [_decode_base64(v, kind, i) for i, v in enumerate(values)] if kind in ("images", "sounds") else values
    return asked


def _parse_vectors(values: list[list[float]]) -> np.ndarray:
    if len({len(row) for row in values}) > 1:
        raise RequestError(422, "vectors: all must have the same length")
    with np.errstate(over="ignore"):  # values too large for 32 bits become infinite and are rejected below
        return np.array(values, dtype=np.float32).reshape(len(values), -1 if values else 0)


def _decode_base64(text: str, input_type: str, number: int) -> bytes:
    """Decode base64, with or without the prefix of a data URI."""
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(422, f"{input_type}.{number}: this is not base64") from None


async def _parse_form(request: Request, limits: Limits, searching: bool) -> ParsedRequest:
    """Parse uploaded files under the name `images` or `sounds`, and `k`."""
    async with request.form(max_files=limits.samples, max_fields=8, max_part_size=4096) as form:
        files = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
        fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
        names = {name for name, _ in files}
        if len(names) != 1 or not names <= {"images", "sounds"}:
            raise RequestError(422, "upload files under one name, images or sounds")
        if unknown := set(fields) - ({"k"} if searching else set()):
            raise RequestError(422, f"unknown field {json.dumps(sorted(unknown)[0][:40])}")
        asked = ParsedRequest(names.pop(), [await value.read() for _, value in files])
        asked.k = _parse_k(fields.get("k"), 10, limits)
        return asked


def _parse_k(text: str | None, default: int, limits: Limits) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RequestError(422, f"k: a whole number from 1 to {limits.k}")
    return int(text)


def _parse_floats(data: bytes, dim: int) -> np.ndarray:
    if not data or len(data) % (4 * dim):
        raise RequestError(422, f"the body has {len(data):,} bytes; vectors of {dim} float32 numbers are multiples of {4 * dim} bytes")
    return np.frombuffer(data, dtype="<f4").reshape(-1, dim)


def _parse_npy(data: bytes) -> np.ndarray:
    """Parse a .npy file.

    Check its header first. The header states the size before memory is allocated.
    """
    try:
        file = io.BytesIO(data)
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except ValueError:
        raise RequestError(422, "the body is not a .npy file") from None
    if len(shape) != 2 or dtype.kind != "f" or fortran or len(data) - file.tell() != shape[0] * shape[1] * dtype.itemsize:
        raise RequestError(422, "the .npy file must hold a table of floats (n, d), row after row")
    with np.errstate(over="ignore"):
        return np.frombuffer(data, dtype=dtype, offset=file.tell()).reshape(shape).astype(np.float32)


def _check_limits(asked: ParsedRequest, limits: Limits, dim: int) -> None:
    if not len(asked):
        raise RequestError(422, f"{asked.input_type}: the list is empty")
    if len(asked) > limits.samples:
        raise RequestError(413, f"{asked.input_type}: {len(asked):,} in one request; {limits.samples:,} are allowed")
    if not 1 <= asked.k <= limits.k:
        raise RequestError(422, f"k: a whole number from 1 to {limits.k}")
    if asked.vectors is not None:
        if asked.vectors.shape[1] != dim:
            raise RequestError(422, f"vectors: they have {asked.vectors.shape[1]} numbers; those of this model have {dim}")
        if not np.isfinite(asked.vectors).all():
            raise RequestError(422, "vectors: not every number is finite in 32 bits")

"""Search results as a page without external files: thumbnails, texts, sounds with a player."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.core.files import atomic_write
from nearfar.data.images.decode import BrokenImage, convert_channels, is_gray, open_image, rotate_upright
from nearfar.index import Index, SearchQuery
from nearfar.modalities.sprites import encode_png_uri
from nearfar.reports.html_templates import render_template

SEARCH_THUMBNAIL_PIXELS = 160
"""Longer side of a thumbnail in pixels."""
MAX_SOUND_BYTES = 4 << 20
"""Largest size of an embedded sound file in bytes. Larger files are not embedded."""
UNREADABLE_FILE = "the file can no longer be read"


@dataclass(frozen=True)
class ShownSample:
    """Sample on the page: a text, an image or a sound.

    `problem` is the reason why a file is not shown. All fields are empty if the sample has only a name.
    """

    text: str | None = None
    thumbnail_uri: str = ""
    """Image of the index, shown without blur."""
    photo_uri: str = ""
    """Image from a file."""
    sound_uri: str = ""
    problem: str = ""


@dataclass(frozen=True)
class ShownHit:
    """Hit with its sample. `name` is empty if the row is the name."""

    score: float
    label: str | None
    name: str
    row: int
    sample: ShownSample


@dataclass(frozen=True)
class HitGroup:
    """Hits of one query vector, as `describe_hits` returns them, and their thumbnails."""

    title: str
    hits: Sequence[dict[str, Any]]
    thumbnails: Sequence[bytes | None]

    @property
    def is_wide(self) -> bool:
        """Return True if the cards must be wide, for texts."""
        return any("text" in hit for hit in self.hits)

    def show_hits(self) -> Iterator[ShownHit]:
        """Yield the hits as the page shows them. Files are read one after another."""
        for hit, thumbnail in zip(self.hits, self.thumbnails, strict=True):
            name = "" if hit["name"] == f"row {hit['row']}" else hit["name"]
            yield ShownHit(hit["score"], hit["label"], name, hit["row"], _show_sample(hit, thumbnail))


def write_search_page(
    path: str | os.PathLike, index: Index, query: SearchQuery, titles: Sequence[str], hit_lists: Sequence[list[dict[str, Any]]]
) -> None:
    """Write the page of a search.

    Args:
        path: file to write.
        index: the searched index.
        query: the query as the user gave it.
        titles: name of each query vector.
        hit_lists: hits of each query vector, as `describe_hits` returns them.
    """
    html = render_template(
        "search.html",
        title=query.title,
        index=index,
        index_name=Path(index.location).name,
        query=_show_query(index, query),
        groups=[
            HitGroup(title, hits, index.read_thumbnails([hit["row"] for hit in hits]))
            for title, hits in zip(titles, hit_lists, strict=True)
        ],
        thumbnail_pixels=SEARCH_THUMBNAIL_PIXELS,
    )
    with atomic_write(path) as f:
        f.write(html.encode("utf-8", "backslashreplace"))


def _show_query(index: Index, query: SearchQuery) -> ShownSample | None:
    """Return the sample of the query.

    Vectors have none. A text is the title of the page.
    """
    if query.row is not None:
        return _show_sample(index.describe_rows([query.row])[0], index.read_thumbnails([query.row])[0])
    return _show_sample({"path": query.path}, None) if query.path else None


def _show_sample(item: dict[str, Any], thumbnail: bytes | None) -> ShownSample:
    if item.get("text") is not None:
        return ShownSample(text=item["text"])
    if thumbnail is not None:
        return ShownSample(thumbnail_uri=f"data:image/png;base64,{base64.b64encode(thumbnail).decode()}")
    if item.get("path") is None:
        return ShownSample()
    media_type = mimetypes.guess_type(item["path"])[0] or ""
    return _read_sound(item["path"], media_type) if media_type.startswith("audio/") else _read_photo(item["path"])


def _read_photo(path: str) -> ShownSample:
    try:
        with open_image(Path(path)) as image:
            image.draft(None, (2 * SEARCH_THUMBNAIL_PIXELS, 2 * SEARCH_THUMBNAIL_PIXELS))
            small = convert_channels(rotate_upright(image), 1 if is_gray(image) else 3)
            small.thumbnail((SEARCH_THUMBNAIL_PIXELS, SEARCH_THUMBNAIL_PIXELS))
            return ShownSample(photo_uri=encode_png_uri(np.asarray(small)))
    except (OSError, BrokenImage, NearfarError):
        return ShownSample(problem=UNREADABLE_FILE)


def _read_sound(path: str, media_type: str) -> ShownSample:
    try:
        if os.path.getsize(path) > MAX_SOUND_BYTES:
            return ShownSample(problem="too long to be part of this page")
        data = Path(path).read_bytes()
    except OSError:
        return ShownSample(problem=UNREADABLE_FILE)
    return ShownSample(sound_uri=f"data:{media_type};base64,{base64.b64encode(data).decode()}")

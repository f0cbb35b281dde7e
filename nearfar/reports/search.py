"""Search results as a page without external files: thumbnails, texts, sounds with a player."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.core.errors import NearfarError
from nearfar.core.files import atomic_write
from nearfar.data.images.decode import BrokenImage, convert_channels, is_gray, open_image, rotate_upright
from nearfar.index import Index, SearchQuery
from nearfar.modalities.sprites import encode_png_uri
from nearfar.reports.page import render_page, render_section

SEARCH_THUMBNAIL_PIXELS = 160
"""Longer side of a thumbnail in pixels."""
MAX_SOUND_BYTES = 4 << 20
"""Largest size of an embedded sound file in bytes. Larger files are not embedded."""
SEARCH_STYLE = """<style>
.hits { display: grid; grid-template-columns: repeat(auto-fill, minmax(168px, 1fr)); gap: 16px; margin-top: 20px; padding: 0;
  list-style: none }
.hits.wide { grid-template-columns: 1fr }
.hits figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 12px }
.hits img, .asked img { display: block; max-width: 100%; min-width: 64px; image-rendering: pixelated; border-radius: 6px;
  margin: 0 auto 10px }
.hits img.photo, .asked img.photo { image-rendering: auto }
.hits audio, .asked audio { width: 100%; margin-bottom: 8px }
.hits blockquote, .asked blockquote { margin: 0 0 8px; white-space: pre-wrap; overflow-wrap: anywhere }
.hits figcaption { display: block; overflow-wrap: anywhere; line-height: 1.4 }
.hits b { color: var(--accent); margin-right: 6px; white-space: nowrap }
.asked { max-width: 420px; margin: 20px 0 }
.asked img { margin: 0 }
</style>"""


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
    asked = _render_query(index, query)
    parts = [
        render_section(f"query-{i}", title if len(titles) > 1 else "Nearest", _hits(index, hits), f"{len(hits)} samples, the nearest first")
        for i, (title, hits) in enumerate(zip(titles, hit_lists, strict=True))
    ]
    head = f'<h1>{escape(query.title)}</h1><p class="lede">{escape(_summary(index))}</p>'
    html = render_page(f"{query.title} · search", f"{SEARCH_STYLE}{head}{asked}{''.join(parts)}")
    with atomic_write(path) as f:
        f.write(html.encode("utf-8", "backslashreplace"))


def _summary(index: Index) -> str:
    nearer = "a smaller distance is nearer" if index.metric == "l2" else "a larger score is nearer"
    return f"{Path(index.location).name}: {len(index):,} samples, {index.index_type} search, {index.metric}; {nearer}."


def _render_query(index: Index, query: SearchQuery) -> str:
    """Render the query.

    The result is empty for vectors and for texts, which are the title.
    """
    if query.row is not None:
        item = index.describe_rows([query.row])[0]
        return f'<div class="asked">{_render_sample(item, index.read_thumbnails([query.row])[0])}</div>'
    return f'<div class="asked">{_render_sample({"path": query.path}, None)}</div>' if query.path else ""


def _hits(index: Index, hits: Sequence[dict[str, Any]]) -> str:
    pictures = index.read_thumbnails([hit["row"] for hit in hits])
    cards = "".join(_card(hit, picture) for hit, picture in zip(hits, pictures, strict=True))
    wide = " wide" if any("text" in hit for hit in hits) else ""
    return f'<ul class="hits{wide}">{cards}</ul>'


def _card(hit: dict[str, Any], picture: bytes | None) -> str:
    label = f" {escape(hit['label'])} ·" if hit["label"] is not None else ""
    row = f"row {hit['row']}"
    name = row if hit["name"] == row else f"{escape(hit['name'])} · {row}"
    caption = f"<figcaption><b>{hit['score']:.4f}</b>{label} {name}</figcaption>"
    return f"<li><figure>{_render_sample(hit, picture)}{caption}</figure></li>"


def _render_sample(item: dict[str, Any], picture: bytes | None) -> str:
    """Render a sample by its text, thumbnail, image file or sound file.

    The result is empty if the sample has only a name.
    """
    if item.get("text") is not None:
        return f"<blockquote>{escape(item['text'])}</blockquote>"
    if picture is not None:
        return f'<img alt="" width="{SEARCH_THUMBNAIL_PIXELS}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    if item.get("path") is None:
        return ""
    kind = mimetypes.guess_type(item["path"])[0] or ""
    return _player(item["path"], kind) if kind.startswith("audio/") else _thumbnail(item["path"])


def _thumbnail(path: str) -> str:
    try:
        with open_image(Path(path)) as image:
            image.draft(None, (2 * SEARCH_THUMBNAIL_PIXELS, 2 * SEARCH_THUMBNAIL_PIXELS))
            small = convert_channels(rotate_upright(image), 1 if is_gray(image) else 3)
            small.thumbnail((SEARCH_THUMBNAIL_PIXELS, SEARCH_THUMBNAIL_PIXELS))
            return f'<img class="photo" alt="" src="{encode_png_uri(np.asarray(small))}">'
    except (OSError, BrokenImage, NearfarError):
        return '<p class="quiet">the file can no longer be read</p>'


def _player(path: str, media_type: str) -> str:
    try:
        if os.path.getsize(path) > MAX_SOUND_BYTES:
            return '<p class="quiet">too long to be part of this page</p>'
        data = Path(path).read_bytes()
    except OSError:
        return '<p class="quiet">the file can no longer be read</p>'
    return f'<audio controls preload="none" src="data:{media_type};base64,{base64.b64encode(data).decode()}"></audio>'

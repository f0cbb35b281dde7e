"""Jinja2 templates of the HTML pages.

The templates lie in the folder `templates`. Every value is escaped, except `markupsafe.Markup`: charts and
equations.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
PIECES_PER_JOIN = 1000
"""Number of strings of a page that are joined at once."""


def render_template(name: str, **values: Any) -> str:
    """Return the page that a template gives with these values.

    Args:
        name: file in the folder `templates`.
        values: variables of the template, by name.

    Raises:
        jinja2.UndefinedError: if the template uses a variable or an attribute that does not exist.
    """
    pieces = _build_environment().get_template(name).generate(values)
    parts = []
    # Escaped strings are objects that Python's garbage collector visits. Joining a few at a time keeps their number small.
    while batch := list(islice(pieces, PIECES_PER_JOIN)):
        parts.append("".join(batch))
    return "".join(parts)


@cache
def _build_environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATE_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )

"""The frame of a page that needs nothing but itself: style sheet, light and dark, wide and narrow, no script."""

from __future__ import annotations

from html import escape

from nearfar.reports.style import STYLE_SHEET

CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
"""The page may load nothing from anywhere, whatever ends up in it."""


def render_page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE_SHEET}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def render_section(name: str, title: str, body: str, intro: str = "") -> str:
    """A part of the page; `name` is its anchor, `intro` a quiet sentence under the title (plain text)."""
    said = f'<p class="quiet">{escape(intro)}</p>' if intro else ""
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{said}{body}\n</section>'


def render_facts(rows: dict[str, str]) -> str:
    """A table of names and values; values are HTML, names are text."""
    lines = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in rows.items())
    return f'<table class="facts"><tbody>{lines}</tbody></table>'

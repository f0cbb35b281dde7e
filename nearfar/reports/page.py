"""HTML frame of pages without external files: style sheet, light and dark mode, no script."""

from __future__ import annotations

from html import escape

from nearfar.reports.style import STYLE_SHEET

CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
"""Content security policy. The page may load nothing from other servers, for any content."""


def render_page(title: str, body: str) -> str:
    """Return a complete HTML page.

    `title` is plain text, `body` is HTML.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE_SHEET}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def render_section(name: str, title: str, body: str, intro: str = "") -> str:
    """Return a section of the page.

    Args:
        name: anchor of the section.
        title: plain text.
        body: HTML.
        intro: a short sentence below the title, plain text.
    """
    said = f'<p class="quiet">{escape(intro)}</p>' if intro else ""
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{said}{body}\n</section>'


def render_facts(rows: dict[str, str]) -> str:
    """Return a table of names and values.

    Values are HTML, names are text.
    """
    lines = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in rows.items())
    return f'<table class="facts"><tbody>{lines}</tbody></table>'

"""What the site needs beyond mkdocs: equations as MathML, and the pages that lie beside docs/ (README, changelog, contributing).

Equations are drawn by the browser itself: no script, nothing from the net. One that `nearfar.reports.mathml` cannot draw is a warning,
hence an error of `mkdocs build --strict`.
"""

from __future__ import annotations

import logging
import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from nearfar.reports.mathml import UnknownLatex, to_mathml

ROOT = Path(__file__).parent.parent
BESIDE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site by the files of the repository that they are."""

MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
FENCE_IN_LIST = re.compile(r"^  ```.*?^  ```$", re.DOTALL | re.MULTILINE)
log = logging.getLogger("mkdocs.hooks.nearfar")


def on_files(files: Files, config: Any) -> Files:
    """The pages beside docs/, and the files that they link to."""
    for name, source in BESIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=LINK.sub(_link, text)))
        for _, target, _ in LINK.findall(text):
            if _is_carried(target) and files.get_file_from_path(target) is None:
                files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def _is_carried(target: str) -> bool:
    """Whether a file outside docs/ becomes a part of the site; folders do not."""
    return (ROOT / target).is_file() and not target.endswith(".md") and not target.startswith("docs/")


def _link(match: re.Match[str]) -> str:
    """A link of a page at the root, seen from the site; a link to a folder is its text alone."""
    text, target, place = match.groups(default="")
    if (ROOT / target).is_dir():
        return text
    pages = {source: name for name, source in BESIDE.items()}
    return f"[{text}]({pages.get(target, target.removeprefix('docs/'))}{place})"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Python-Markdown wants four spaces before what belongs to a list, where two are enough elsewhere."""
    return FENCE_IN_LIST.sub(lambda fence: re.sub(r"^", "  ", fence[0], flags=re.MULTILINE), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Every equation drawn."""
    return MATHS.sub(lambda found: _drawn(found[2], found[1] == "div", page.file.src_uri), html)


def _drawn(escaped: str, alone: bool, page: str) -> str:
    latex = unescape(escaped).strip()
    try:
        return f'<math display="{"block" if alone else "inline"}">{to_mathml(latex)}</math>'
    except UnknownLatex as e:
        log.warning("%s: an equation cannot be drawn (%s): %s", page, e, latex)
        return f"<code>{escaped}</code>"

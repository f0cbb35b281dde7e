"""Style sheet of the pages and of the explorer: the file `templates/style.css`."""

from __future__ import annotations

from nearfar.reports.html_templates import TEMPLATE_FOLDER

STYLE_SHEET = (TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")

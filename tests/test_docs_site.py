"""The site: it builds without a warning, loads nothing from another machine, and draws its equations."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that make a browser fetch something, and where they say what."""


class Page(HTMLParser):
    """What a page loads, and which text stands in its equations."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.equations: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag in LOADED and found.get("rel") != "canonical":
            self.loads.append(found.get(LOADED[tag]) or "")
        if tag == "math":
            self.inside = True
            self.equations.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "math"

    def handle_data(self, data):
        if self.inside:
            self.equations[-1] += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Page]:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    assert done.returncode == 0, done.stderr
    return {file.name: Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_of_the_plan_is_there(pages):
    names = "index tour own methods losses results claims status design data changelog contributing"
    assert {f"{name}.html" for name in names.split()} <= pages.keys()


def test_no_page_asks_another_machine_for_anything(pages):
    for name, page in pages.items():
        assert page.loads, name
        assert not [place for place in page.loads if "//" in place], name


def test_equations_are_drawn_by_the_browser_itself(pages):
    simclr = [text for text in pages["methods.html"].equations if "sim(zi,zj)/τ" in text]
    assert any(text.startswith("ℓi,j=−log") for text in simclr)
    assert len(pages["losses.html"].equations) > 100

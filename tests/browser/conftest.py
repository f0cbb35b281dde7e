"""Tests of the explorer in a real browser: `make test-browser`.

A plain `pytest` skips them, because they need Chromium and more than a minute.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

collect_ignore_glob = [] if os.environ.get("NEARFAR_BROWSER") else ["test_*.py"]
CHROMIUM = os.environ.get("NEARFAR_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Train two runs on digits in one folder."""
    from serving import small_run

    folder = tmp_path_factory.mktemp("runs")
    small_run(folder / "first")
    small_run(folder / "second", seed=1)
    return folder


@pytest.fixture(scope="session")
def server(runs):
    from serving import serving

    with serving(runs / "first", "--map", "pca", token=None) as found:
        yield found


class WatchedPage:
    """Page that records its errors and the addresses of its requests."""

    def __init__(self, page):
        self.page, self.problems, self.requests = page, [], []
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: self.requests.append(r.url))


@pytest.fixture
def open_page(browser):
    """Return the function open_page(address, **context) -> WatchedPage.

    After the test, fail if a page had an error or sent a request to another server.
    """
    contexts, pages = [], []

    def open_page(address: str, **options) -> WatchedPage:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(60_000)
        watched = WatchedPage(context.new_page())
        contexts.append(context)
        pages.append(watched)
        watched.page.goto(address)
        return watched

    yield open_page
    for context in contexts:
        context.close()
    for watched in pages:
        assert watched.problems == []
        assert [url for url in watched.requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []

"""How long the explorer takes to redraw 100,000 points when somebody zooms, in a headless Chromium that draws in software.

    python benchmarks/explorer.py

An index of 100,000 labelled vectors in ten clouds is served; the page is opened, and its map is zoomed in and out 40 times in
steps, as the buttons and the wheel do. A redraw ends when the second frame after it has been drawn. Also: the bytes of map and
colours, and the time until the first picture. The load of the machine is written beside the numbers: other work adds to them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import write
from provenance import GENERATED, agrees, provenance

from nearfar.core import RandomKey
from nearfar.index import RowTable, build_index

ROWS, DIM, ZOOMS, LIMIT = 100_000, 32, 40, 250.0
SETTINGS = {"rows": ROWS, "dim": DIM, "zooms": ZOOMS}
REDRAW = """async (zooms) => {
  const plot = document.querySelector(".plot"), frame = () => new Promise((done) => requestAnimationFrame(done)), times = [];
  for (let i = 0; i < zooms; i++) {
    const half = 1.08 * 0.8 ** (i % 8), began = performance.now();
    await Plotly.relayout(plot, { "xaxis.range": [-half, half], "yaxis.range": [-half, half] });
    await frame(); await frame();
    times.push(performance.now() - began);
  }
  return times;
}"""


def clouds(folder: Path) -> Path:
    """Ten clouds around keyed centres."""
    rng_key, rows = RandomKey(0)("benchmark", "explorer"), np.arange(ROWS)
    label = rng_key("label").integers(rows, 10, 1)[:, 0]
    vectors = rng_key("noise").normal(rows, DIM) + 4 * rng_key("centre").normal(label, DIM)
    build_index(
        vectors, RowTable.from_columns([f"row {i}" for i in rows], [f"cloud {y}" for y in label]), folder / "index", index_type="exact"
    )
    return folder / "index"


def measure(address: str) -> dict[str, Any]:
    """Open the map in a headless browser and time redraws."""
    from browser.conftest import CHROMIUM, FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.set_default_timeout(120_000)
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_function("document.querySelector('.plot')?.data?.[0]?.x?.length > 0")
        page.wait_for_selector(".under .legend button")
        first = time.perf_counter() - began
        points = page.evaluate("document.querySelector('.plot').data[0].x.length")
        page.evaluate(REDRAW, 4)
        times = page.evaluate(REDRAW, ZOOMS)
        version = browser.version
        browser.close()
    return {
        "points": points,
        "first_picture_seconds": first,
        "zoom_redraw_ms": {"median": statistics.median(times), "p95": statistics.quantiles(times, n=20)[-1], "best": min(times)},
        "limit_ms": LIMIT,
        "bytes": {"map": 8 * points, "colours": 4 * points},
        "chromium": version,
    }


def is_current(row: dict[str, Any]) -> bool:
    """Return True if the stored result has today's settings."""
    return agrees(row, SETTINGS)


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])


def main() -> None:
    parser().parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from serving import serving

    with tempfile.TemporaryDirectory() as folder, serving(clouds(Path(folder)), "--map", "pca", token=None) as server:
        found = measure(server.address)
    busy = os.getloadavg()[0]
    print(f"{found['points']:,} points: median redraw {found['zoom_redraw_ms']['median']:.0f} ms (wanted: {LIMIT:.0f}); load {busy:.1f}")
    print(f"written to {write('explorer', found | {'load_average': busy} | provenance(SETTINGS, GENERATED))}")


if __name__ == "__main__":
    main()

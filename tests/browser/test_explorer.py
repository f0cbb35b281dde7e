"""Actions of a user on the explorer page, and their visible results."""

from __future__ import annotations

import numpy as np
from serving import TOKEN, png, serving

import nearfar

POINT_COUNT = "document.querySelector('section:not([hidden]) .plot')?.data?.[0]?.x?.length"
MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


def open_map(open_page, server, hash: str = "", **options):
    """Open the page and wait until the map and its legend are there."""
    page = open_page(f"{server.address}/{hash}", **options).page
    page.wait_for_function(f"{POINT_COUNT} > 0")
    page.wait_for_selector(".under .legend button")
    return page


def find_central_point(page) -> tuple[float, float]:
    """Return the position on the screen of the point nearest to the center of the map."""
    return page.evaluate("""() => {
      const plot = document.querySelector("section:not([hidden]) .plot"), box = plot.getBoundingClientRect();
      const { xaxis, yaxis } = plot._fullLayout, { x, y } = plot.data[0];
      let best = 0;
      for (let i = 0; i < x.length; i++) if (Math.hypot(x[i], y[i]) < Math.hypot(x[best], y[best])) best = i;
      return [box.left + xaxis.l2p(x[best]), box.top + yaxis.l2p(y[best])];
    }""")


def test_map_shows_every_row_and_legend_selects_a_category(open_page, server):
    page = open_map(open_page, server)
    assert page.evaluate(POINT_COUNT) == 1797
    assert page.locator(".under .legend button").all_inner_texts() == list("0123456789")
    page.get_by_role("button", name="3", exact=True).click()
    page.wait_for_function("document.querySelector('.plot').data[0].marker.color.filter((c) => c === 3).length === 183")
    assert page.evaluate("new Set(document.querySelector('.plot').data[0].marker.color).size") == 2


def test_hover_shows_the_picture_and_click_the_neighbors(open_page, server):
    page = open_map(open_page, server)
    x, y = find_central_point(page)
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    page.wait_for_selector("#hover:not([hidden]) img")
    page.wait_for_function("document.querySelector('#hover img').naturalWidth === 8")
    page.mouse.click(x, y)
    page.wait_for_selector("aside .hits li:nth-child(12)")
    assert page.evaluate("document.querySelector('.plot').data[1].x.length") == 13, "the point and twelve neighbors are marked"
    assert page.locator("aside .difference").count() == 12
    media = server.json("GET", "/explorer/about", token=None)[1]["media"]
    assert page.locator("aside p.quiet").last.inner_text().endswith(media["difference"])
    scores = [float(text) for text in page.locator("aside .score b").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    page.locator("aside .hit").first.click()
    page.wait_for_function("location.hash !== ''")


def test_search_by_row_and_by_upload(open_page, server):
    watched = open_page(server.address)
    page = watched.page
    page.wait_for_selector(".under .legend button")
    page.keyboard.press("/")
    page.keyboard.type("17")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=row 17")
    picture = png(np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8))
    page.set_input_files("#file", {"name": "noise.png", "mimeType": "image/png", "buffer": picture})
    page.wait_for_selector("text=Nearest to noise.png")
    assert page.locator("aside .hits li").count() == 12
    page.set_input_files("#file", {"name": "broken.png", "mimeType": "image/png", "buffer": b"no image"})
    page.wait_for_selector("aside [role=alert]")
    assert "not a JPEG" in page.locator("aside [role=alert]").inner_text()
    assert len(watched.problems) == 1
    assert "422" in watched.problems.pop(), "browsers log every error status"


def test_points_are_colored_by_cluster_and_by_number(open_page, server):
    page = open_map(open_page, server)
    page.get_by_label("Color").select_option("cluster")
    page.wait_for_selector("text=cluster 10")
    page.get_by_label("Clusters").fill("4")
    page.get_by_label("Clusters").press("Enter")
    page.wait_for_function("document.querySelectorAll('.under .legend button').length === 4")
    assert page.locator(".under .legend button").count() == 4
    page.get_by_label("Color").select_option("crowding")
    page.wait_for_selector(".color-bar")
    assert page.locator(".under .legend button").count() == 0, "a number has a color bar instead of a legend"


def test_map_and_tabs_work_with_the_keyboard(open_page, server):
    page = open_map(open_page, server)
    page.locator(".plot").focus()
    before = page.evaluate("document.querySelector('.plot')._fullLayout.xaxis.range.slice()")
    page.keyboard.press("+")
    page.wait_for_function(f"document.querySelector('.plot')._fullLayout.xaxis.range[1] < {before[1]}")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("0")
    page.wait_for_function(f"document.querySelector('.plot')._fullLayout.xaxis.range[1] === {before[1]}")
    page.keyboard.press("Enter")
    page.wait_for_selector("aside .hits li")
    assert page.locator("aside .hits li").count() == 12
    page.locator("#tab-map").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tab-compare[aria-selected=true]")
    page.keyboard.press("4")
    page.wait_for_selector("#tab-curves[aria-selected=true]")
    assert page.locator("[role=tab][aria-selected=true]").count() == 1


def test_two_runs_are_compared_side_by_side(open_page, server):
    page = open_page(f"{server.address}/#compare").page
    page.wait_for_selector("#panel-compare .hits li:nth-child(24)")
    drawn = page.evaluate("[...document.querySelectorAll('#panel-compare .plot')].map((p) => p.data[0].x.length)")
    assert drawn == [1797, 1797]
    assert "neighbors differ in second" in page.locator("#panel-compare .lede").inner_text()
    page.locator("#panel-compare .hit").first.click()
    page.wait_for_function("[...document.querySelectorAll('#panel-compare .plot')].every((p) => p.data[1].x.length === 1)")


def test_views_curves_runs_and_health_tabs_have_content(open_page, server):
    page = open_page(f"{server.address}/#views").page
    page.wait_for_selector("#panel-views .view-pair:nth-child(24) img")
    page.locator("#tab-curves").click()
    page.wait_for_selector("#panel-curves .main-svg")
    assert "loss" in page.locator("#panel-curves figcaption").all_inner_texts()
    page.locator("#tab-runs").click()
    page.wait_for_selector("#panel-runs tbody tr:nth-child(2)")
    assert page.locator("#panel-runs tbody td:first-child").all_inner_texts() == ["first", "second"]
    page.locator("#tab-health").click()
    page.wait_for_selector("#panel-health tbody tr")
    page.wait_for_selector("#panel-health >> text=Findings")


def test_page_follows_the_color_scheme_and_fits_a_phone(open_page, server):
    light, dark = (open_map(open_page, server, color_scheme=scheme) for scheme in ("light", "dark"))
    background = "getComputedStyle(document.body).backgroundColor"
    assert (light.evaluate(background), dark.evaluate(background)) == ("rgb(252, 252, 251)", "rgb(20, 23, 26)")
    light.emulate_media(color_scheme="dark")
    light.wait_for_function(f"{background} === 'rgb(20, 23, 26)'")
    phone = open_map(open_page, server, "#map/17", viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True)
    phone.wait_for_selector("aside .hits li")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for tab in ("compare", "views", "curves", "runs", "health"):
        phone.evaluate(f"location.hash = '{tab}'")
        phone.wait_for_timeout(700)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, tab


def test_markup_in_texts_and_names_is_shown_as_text(open_page, tmp_path):
    lines = [f"{MARKUP} number {i}" for i in range(20)] + [f"a harmless line number {i}" for i in range(20)]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines))
    nearfar.fit("simcse-unsup", str(file), preset="tiny", out=tmp_path / MARKUP.replace("/", "_"), steps=2, batch_size=16)
    with serving(tmp_path / MARKUP.replace("/", "_"), "--map", "pca") as server:
        watched = open_page(f"{server.address}/#map/3")
        page = watched.page
        page.wait_for_selector("#token[open]")
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=This is not the token.")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("aside .hits li")
        assert MARKUP in page.locator(".selected-sample q").inner_text()
        page.mouse.move(*find_central_point(page))
        page.wait_for_selector("#hover:not([hidden])")
        assert page.evaluate("document.querySelector('#hover').lastChild.nodeName") == "B", "without a label, the name comes last"
        page.locator("#search").fill(f"{MARKUP} harmless")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Nearest to")
        page.locator("#tab-views").click()
        page.wait_for_selector("#panel-views .view-pair q")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img").count() == 0
        watched.problems[:] = [p for p in watched.problems if "401" not in p]


def test_api_documentation_works_offline(open_page, server):
    page = open_page(f"{server.address}/docs").page
    page.wait_for_selector(".opblock-summary-path >> text=/search")
    assert {"/embed", "/search", "/health"} <= {path.strip() for path in page.locator(".opblock-summary-path").all_inner_texts()}

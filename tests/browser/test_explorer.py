"""What a user sees and does on the page."""

from __future__ import annotations

import numpy as np
from serving import TOKEN, png, serving

import nearfar

DRAWN = "document.querySelector('section:not([hidden]) .plot')?.data?.[0]?.x?.length"
EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


def atlas(open_page, server, where: str = "", **how):
    page = open_page(f"{server.address}/{where}", **how).page
    page.wait_for_function(f"{DRAWN} > 0")
    page.wait_for_selector(".under .legend button")
    return page


def middle_of_a_point(page) -> tuple[float, float]:
    """Where on the screen the point nearest to the middle of the view is."""
    return page.evaluate("""() => {
      const plot = document.querySelector("section:not([hidden]) .plot"), box = plot.getBoundingClientRect();
      const { xaxis, yaxis } = plot._fullLayout, { x, y } = plot.data[0];
      let best = 0;
      for (let i = 0; i < x.length; i++) if (Math.hypot(x[i], y[i]) < Math.hypot(x[best], y[best])) best = i;
      return [box.left + xaxis.l2p(x[best]), box.top + yaxis.l2p(y[best])];
    }""")


def test_the_map_shows_every_row_and_the_legend_greys_out_the_others(open_page, server):
    page = atlas(open_page, server)
    assert page.evaluate(DRAWN) == 1797
    assert page.locator(".under .legend button").all_inner_texts() == list("0123456789")
    page.get_by_role("button", name="3", exact=True).click()
    page.wait_for_function("document.querySelector('.plot').data[0].marker.color.filter((c) => c === 3).length === 183")
    assert page.evaluate("new Set(document.querySelector('.plot').data[0].marker.color).size") == 2


def test_hover_shows_the_picture_and_click_its_neighbours(open_page, server):
    page = atlas(open_page, server)
    x, y = middle_of_a_point(page)
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    page.wait_for_selector("#hover:not([hidden]) img")
    page.wait_for_function("document.querySelector('#hover img').naturalWidth === 8")
    page.mouse.click(x, y)
    page.wait_for_selector("aside .hits li:nth-child(12)")
    assert page.evaluate("document.querySelector('.plot').data[1].x.length") == 13, "the point and twelve neighbors are marked"
    assert page.locator("aside .difference").count() == 12
    scores = [float(text) for text in page.locator("aside .said b").all_inner_texts()]
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
    assert "422" in watched.problems.pop(), "browsers note every refusal"


def test_colours_by_cluster_and_by_number(open_page, server):
    page = atlas(open_page, server)
    page.get_by_label("Colour").select_option("cluster")
    page.wait_for_selector("text=cluster 10")
    page.get_by_label("Clusters").fill("4")
    page.get_by_label("Clusters").press("Enter")
    page.wait_for_function("document.querySelectorAll('.under .legend button').length === 4")
    assert page.locator(".under .legend button").count() == 4
    page.get_by_label("Colour").select_option("crowding")
    page.wait_for_selector(".ramp")
    assert page.locator(".under .legend button").count() == 0, "a number has a ramp instead of a legend"


def test_the_keyboard_reaches_everything(open_page, server):
    page = atlas(open_page, server)
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


def test_two_runs_side_by_side_and_who_moved(open_page, server):
    page = open_page(f"{server.address}/#compare").page
    page.wait_for_selector("#panel-compare .hits li:nth-child(24)")
    drawn = page.evaluate("[...document.querySelectorAll('#panel-compare .plot')].map((p) => p.data[0].x.length)")
    assert drawn == [1797, 1797]
    assert "neighbors differ in second" in page.locator("#panel-compare .lede").inner_text()
    page.locator("#panel-compare .hit").first.click()
    page.wait_for_function("[...document.querySelectorAll('#panel-compare .plot')].every((p) => p.data[1].x.length === 1)")


def test_views_curves_runs_and_health(open_page, server):
    page = open_page(f"{server.address}/#views").page
    page.wait_for_selector("#panel-views .twin:nth-child(24) img")
    page.locator("#tab-curves").click()
    page.wait_for_selector("#panel-curves .main-svg")
    assert "loss" in page.locator("#panel-curves figcaption").all_inner_texts()
    page.locator("#tab-runs").click()
    page.wait_for_selector("#panel-runs tbody tr:nth-child(2)")
    assert page.locator("#panel-runs tbody td:first-child").all_inner_texts() == ["first", "second"]
    page.locator("#tab-health").click()
    page.wait_for_selector("#panel-health tbody tr")
    page.wait_for_selector("#panel-health >> text=Findings")


def test_light_dark_and_a_phone(open_page, server):
    light, dark = (atlas(open_page, server, color_scheme=mood) for mood in ("light", "dark"))
    paper = "getComputedStyle(document.body).backgroundColor"
    assert (light.evaluate(paper), dark.evaluate(paper)) == ("rgb(252, 252, 251)", "rgb(20, 23, 26)")
    light.emulate_media(color_scheme="dark")
    light.wait_for_function(f"{paper} === 'rgb(20, 23, 26)'")
    phone = atlas(open_page, server, "#map/17", viewport={"width": 390, "height": 800}, is_mobile=True, has_touch=True)
    phone.wait_for_selector("aside .hits li")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for tab in ("compare", "views", "curves", "runs", "health"):
        phone.evaluate(f"location.hash = '{tab}'")
        phone.wait_for_timeout(700)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390, tab


def test_texts_are_shown_as_they_are_and_never_run(open_page, tmp_path):
    lines = [f"{EVIL} number {i} of many" for i in range(20)] + [f"a harmless line number {i}" for i in range(20)]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines))
    nearfar.fit("simcse-unsup", str(file), preset="tiny", out=tmp_path / EVIL.replace("/", "_"), steps=2, batch_size=16)
    with serving(tmp_path / EVIL.replace("/", "_"), "--map", "pca") as server:
        watched = open_page(f"{server.address}/#map/3")
        page = watched.page
        page.wait_for_selector("#token[open]")
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=This is not the token.")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("aside .hits li")
        assert EVIL in page.locator(".chosen q").inner_text()
        page.locator("#search").fill(f"{EVIL} harmless")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Nearest to")
        page.locator("#tab-views").click()
        page.wait_for_selector("#panel-views .twin q")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img").count() == 0
        watched.problems[:] = [p for p in watched.problems if "401" not in p]


def test_the_documentation_works_offline(open_page, server):
    page = open_page(f"{server.address}/docs").page
    page.wait_for_selector(".opblock-summary-path >> text=/search")
    assert {"/embed", "/search", "/health"} <= {path.strip() for path in page.locator(".opblock-summary-path").all_inner_texts()}

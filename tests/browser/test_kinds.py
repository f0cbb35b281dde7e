"""Explorer pages of runs on images with captions and on sounds."""

from __future__ import annotations

import pytest
from serving import serving

import nearfar


@pytest.fixture(scope="module")
def image_text_server(tmp_path_factory):
    run = tmp_path_factory.mktemp("clip") / "run"
    nearfar.fit("clip", preset="tiny", out=run, steps=60, seed=0)
    with serving(run, "--map", "pca", token=None) as server:
        yield server


@pytest.fixture(scope="module")
def sound_server(tmp_path_factory):
    run = tmp_path_factory.mktemp("sounds") / "run"
    nearfar.fit("nandan-vepa", preset="tiny", out=run, steps=2, batch_size=16)
    with serving(run, "--map", "pca", token=None) as server:
        yield server


def test_text_query_finds_images(open_page, image_text_server):
    page = open_page(image_text_server.address).page
    page.wait_for_selector(".under .legend button")
    page.get_by_label("Search").fill("the digit three")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nearest to “the digit three”")
    assert page.locator("aside .hits li").count() == 12
    page.wait_for_function("[...document.querySelectorAll('aside .hits img')].filter((i) => i.naturalWidth === 8).length === 12")
    assert sum("three" in text for text in page.locator("aside .hits li").all_inner_texts()) >= 9
    assert page.locator("#file").get_attribute("accept").startswith("image/png"), "images can be uploaded too"


def test_views_pair_an_image_with_its_caption(open_page, image_text_server):
    page = open_page(image_text_server.address).page
    page.locator("#tab-views").click()
    page.wait_for_selector(".views .view-pair.with-text img")
    assert page.locator(".views .view-pair.with-text q").count() == page.locator(".views .view-pair.with-text img").count() > 3


def test_sounds_have_a_spectrogram_and_a_player(open_page, sound_server):
    page = open_page(sound_server.address).page
    page.wait_for_selector(".under .legend button")
    page.get_by_label("Search").fill("17")
    page.keyboard.press("Enter")
    page.wait_for_selector("aside .selected-sample audio")
    page.wait_for_function("document.querySelector('aside .selected-sample img').naturalWidth > 8")
    played = "(async () => { const a = document.querySelector('aside .selected-sample audio'); await a.play(); return a.duration })()"
    assert page.evaluate(played) > 0.1
    page.locator("#tab-views").click()
    page.wait_for_selector(".views .view-pair img")
    page.wait_for_function("document.querySelector('.views .view-pair img').naturalWidth > 8")

"""The page of runs that are not on pictures alone: words find drawings, sounds are played."""

from __future__ import annotations

import pytest
from serving import serving

import nearfar


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    run = tmp_path_factory.mktemp("clip") / "run"
    nearfar.fit("clip", preset="tiny", out=run, steps=60, seed=0)
    with serving(run, "--map", "pca", token=None) as server:
        yield server


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    run = tmp_path_factory.mktemp("sounds") / "run"
    nearfar.fit("nandan-vepa", preset="tiny", out=run, steps=2, batch_size=16)
    with serving(run, "--map", "pca", token=None) as server:
        yield server


def test_words_find_pictures(open_page, pictured):
    page = open_page(pictured.address).page
    page.wait_for_selector(".under .legend button")
    page.get_by_label("Search").fill("the digit three")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nearest to “the digit three”")
    assert page.locator("aside .hits li").count() == 12
    page.wait_for_function("[...document.querySelectorAll('aside .hits img')].filter((i) => i.naturalWidth === 8).length === 12")
    assert sum("three" in said for said in page.locator("aside .hits li").all_inner_texts()) >= 9
    assert page.locator("#file").get_attribute("accept").startswith("image/png"), "pictures may be uploaded too"


def test_pairs_of_a_picture_and_its_words(open_page, pictured):
    page = open_page(pictured.address).page
    page.locator("#tab-views").click()
    page.wait_for_selector(".views .twin.worded img")
    assert page.locator(".views .twin.worded q").count() == page.locator(".views .twin.worded img").count() > 3


def test_sounds_are_seen_and_played(open_page, heard):
    page = open_page(heard.address).page
    page.wait_for_selector(".under .legend button")
    page.get_by_label("Search").fill("17")
    page.keyboard.press("Enter")
    page.wait_for_selector("aside .chosen audio")
    page.wait_for_function("document.querySelector('aside .chosen img').naturalWidth > 8")
    played = "(async () => { const a = document.querySelector('aside .chosen audio'); await a.play(); return a.duration })()"
    assert page.evaluate(played) > 0.1
    page.locator("#tab-views").click()
    page.wait_for_selector(".views .twin img")
    page.wait_for_function("document.querySelector('.views .twin img').naturalWidth > 8")

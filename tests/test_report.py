"""The page: parsed, searched for anything that would reach the network, its images decoded, its sources escaped."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from nearfar.core import Card, RandomKey, UsageError
from nearfar.evaluate import Features, build_pixel_baselines, compare_features, project_to_2d, spectrum
from nearfar.modalities.sprites import build_sprite_sheet
from nearfar.reports.charts import ChartLine, compute_decade_ticks, compute_ticks, draw_line_chart, draw_scatter, format_number, thin_curve
from nearfar.reports.report import ReportContent, render_report, write_report
from nearfar.reports.report_samples import find_neighbors

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Elements with their attributes, text, and whether every element is closed in order."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def ids(self) -> set[str]:
        return {a["id"] for _, a in self.elements if a.get("id")}  # type: ignore[misc]


@pytest.fixture(scope="module")
def content() -> ReportContent:
    digits = load_digits()
    x, y = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
    train, test, train_y, test_y = x[:400], x[400:600], y[:400], y[400:600]
    views = (test[:24], test[:24].roll(1, 3))
    features = [Features(t.flatten(1)[:, :40], s.flatten(1)[:, :40]) for t, s in [(train, test)]]
    table = compare_features(
        build_pixel_baselines(train, test, views) | {f"run {EVIL}": features[0]}, train_y, test_y, rng_key=RandomKey(0), draws=2
    )
    card = Card(
        title=f"SimCLR {EVIL}", paper="Chen et al., https://arxiv.org/abs/2002.05709.", year=2020, modality="images", similarity="crops",
        query="a view", positive="the other", negative="the rest", encoder="any", head="MLP", score="cosine", loss="NT-Xent",
        equation=r"-\log \frac{\exp(s_{ij}/\tau)}{\sum_{k \neq i} \exp(s_{ik}/\tau)}",
    )  # fmt: skip
    return ReportContent(
        title=f"A run {EVIL}", summary=EVIL, card=card, table=table,
        log=[{"step": s, "loss": 3.0 / (1 + s), "lr": 1e-3, "note": EVIL, "time": 0.1 * s, f"aux {EVIL}": s % 7} for s in range(100)],
        pairs=views, map=project_to_2d(test.flatten(1), "pca", rng_key=RandomKey(0)), labels=test_y, class_names=[EVIL, *"123456789"],
        neighbors=find_neighbors(
            train.flatten(1), test.flatten(1), train.__getitem__, test.__getitem__, [0, 5], train_labels=train_y, test_labels=test_y
        ),
        spectra={EVIL: spectrum(test.flatten(1)), "untrained": spectrum(train.flatten(1))},
        stored_config={EVIL: EVIL, "run": {"seed": 0}}, command=f"nearfar fit simclr --data '{EVIL}'", versions={"torch": EVIL},
        seconds=7384,
    )  # fmt: skip


@pytest.fixture(scope="module")
def html(content, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, content)
    return path.read_text(encoding="utf-8")


def test_all_parts_are_there_well_nested_and_small(html):
    found = Page(html)
    assert found.open == []
    assert found.ids == {"method", "evaluation", "curves", "pairs", "map", "neighbours", "spectrum", "again"}
    assert len(html) < 500_000
    text = " ".join(found.text)
    for part in ("raw pixels, scaled", "mean ± standard deviation over 2 draws", "run.seed", "2 h 3 min", "Chen et al."):
        assert part in text


def test_nothing_is_loaded_from_anywhere(html):
    found = Page(html)
    for tag, attributes in found.elements:
        assert tag not in ("script", "link", "iframe", "object", "embed", "img", "base", "form", "image", "use")
        assert not {"src", "srcset", "poster", "action", "background"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert tag == "a"
    assert all(url.startswith("data:image/png;base64,") for url in re.findall(r"url\(([^)]*)\)", html))
    assert "@import" not in html
    assert "@font-face" not in html
    policy = next(a["content"] for tag, a in found.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_links_are_the_papers_and_end_where_the_address_ends(html):
    assert [a["href"] for tag, a in Page(html).elements if tag == "a"] == ["https://arxiv.org/abs/2002.05709"]


def test_every_string_of_the_data_is_escaped(html):
    assert EVIL not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10
    assert any(EVIL in text for text in Page(html).text)


def test_images_decode_and_hold_the_pixels(html, content):
    uris = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", html)
    assert len(uris) == 2
    pairs, neighbours = (Image.open(io.BytesIO(base64.b64decode(u, validate=True))) for u in uris)
    assert pairs.format == neighbours.format == "PNG"
    first = np.asarray(pairs)[:8, :8] / 255
    assert np.allclose(first, content.pairs[0][0, 0], atol=1 / 255)
    assert pairs.size == (7 * 8, 7 * 8)
    assert html.count('class="px') == 48 + 2 * 9


def test_equations_outside_the_vocabulary_are_shown_as_source(content):
    card = dataclasses.replace(content.card, equation=r"\unknown <b>")
    page = Page(render_report(ReportContent(title="t", card=card)))
    assert r"\unknown <b>" in page.text
    assert not {tag for tag, _ in page.elements} & {"math", "b"}


def test_legends_count_the_names_that_are_left_out():
    names = [f"class {i}" for i in range(30)]
    view = project_to_2d(torch.eye(30), "pca", rng_key=RandomKey(0))
    page = Page(render_report(ReportContent(title="t", map=view, labels=torch.arange(30), class_names=names)))
    assert [text for text in page.text if text in names] == names[:24]
    assert "and 6 more" in page.text


def test_curves_show_scalars_only(html):
    captions = re.findall(r"<figcaption><b>(.*?)</b>", html)
    assert captions == ["loss", "aux &lt;script&gt;alert(1)&lt;/script&gt;", "lr"]


def test_label_agreement_is_counted(content):
    near = content.neighbors
    agreeing = [int((torch.as_tensor(near.neighbor_labels[q]) == int(near.query_labels[q])).sum()) for q in range(2)]
    page = render_report(content)
    assert re.findall(r'class="count">(\d) of 8<', page) == [str(a) for a in agreeing]
    assert page.count('class="tile no"') == 16 - sum(agreeing)


def test_every_part_is_optional():
    page = Page(render_report(ReportContent(title="bare")))
    assert page.open == []
    assert page.ids == set()


def test_without_labels_map_and_neighbours_are_still_drawn(content):
    x = torch.rand(30, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    near = find_neighbors(x.flatten(1), x.flatten(1), x.__getitem__, x.__getitem__, [1], k=3)
    shown = ReportContent(title="t", map=project_to_2d(x.flatten(1), "pca", rng_key=RandomKey(0)), neighbors=near)
    page = render_report(shown)
    assert Page(page).ids == {"map", "neighbours"}
    assert page.count("<circle") == 30
    assert 'class="count"' not in page
    assert 'class="legend"' not in page


def test_a_bad_target_is_one_clear_message(tmp_path):
    with pytest.raises(UsageError, match="it is a folder"):
        write_report(tmp_path, ReportContent(title="t"))


def test_large_images_are_shrunk_and_channels_chosen():
    sheet = build_sprite_sheet(torch.rand(3, 3, 100, 200))
    stored = Image.open(io.BytesIO(base64.b64decode(sheet.uri.partition(",")[2])))
    assert (stored.mode, stored.size) == ("RGB", (128, 64))
    assert (sheet.width, sheet.height) == (64, 32)
    grey = build_sprite_sheet(torch.tensor([[[[float("nan"), 2.0], [-1.0, 0.5]]]]))
    assert np.asarray(Image.open(io.BytesIO(base64.b64decode(grey.uri.partition(",")[2])))).tolist() == [[0, 255], [0, 128]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0, 0.5, 1]),
        (0.0, 100.0, [0, 50, 100]),
        (-3.0, 3.0, [-2, 0, 2]),
        (5.0, 5.0, [5]),
        (1e-5, 5e-5, [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]),
    ],
)
def test_ticks_are_round_and_within(low, high, expected):
    assert compute_ticks(low, high) == pytest.approx(expected)


def test_decades_enclose_and_numbers_are_short():
    assert compute_decade_ticks(-2.5, 0.2) == [-3, -2, -1, 0, 1]
    assert compute_decade_ticks(-12.0, 0.0)[-1] == 0
    assert [format_number(v) for v in (0.0, 0.5, 2e4, 1.5e6, 5e-4, -2.0)] == ["0", "0.5", "20k", "1.5M", "5e−4", "−2"]


def test_thinning_keeps_spikes_and_ends():
    y = np.zeros(10_000)
    y[4321], y[777] = 9.0, -9.0
    x, kept = thin_curve(np.arange(10_000.0), y)
    assert len(x) <= 402
    assert {0, 777, 4321, 9999} <= set(x.astype(int))
    assert kept.max() == 9
    assert (np.diff(x) > 0).all()


def test_values_that_are_not_finite_leave_a_gap():
    drawn = draw_line_chart([ChartLine("loss", np.arange(5), np.array([1, 2, np.nan, np.inf, 3]))], "loss")
    path = re.search(r'<path[^>]* d="([^"]*)"', drawn)[1]
    assert path.count("M") == 2
    assert path.count("L") == 1
    assert "nan" not in drawn
    assert draw_line_chart([ChartLine("loss", [0.0, 1.0], [float("nan")] * 2)], "loss") is None
    page = Page(render_report(ReportContent(title="t", log=[{"step": 0, "loss": float("nan")}])))
    assert "no finite values" in page.text
    assert "not finite at the end" in page.text
    assert "<path" in draw_line_chart([ChartLine("one", [5.0], [2.0])], "one point")


def test_scatter_draws_each_point_inside_and_many_groups_in_many_colours():
    points = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32) * [100, 1]
    drawn = draw_scatter(points, "map", groups=np.arange(200) % 40, titles=[f"p{i}" for i in range(200)])
    xs = [float(v) for v in re.findall(r'cx="([^"]*)"', drawn)]
    assert len(xs) == 200
    assert min(xs) >= 0
    assert max(xs) <= 760
    assert drawn.count("<title>") == 200
    assert len(set(re.findall(r"fill:(hsl[^\"]*)", drawn))) == 40

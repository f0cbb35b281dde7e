"""Test the templates of the pages: strings from data appear as text, in every place of every page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from jinja2 import UndefinedError
from markupsafe import Markup
from test_report import Page

import nearfar
from nearfar.core import Card, RandomKey
from nearfar.evaluate import ResultTable, project_to_2d
from nearfar.evaluate.run_results import RunResults
from nearfar.evaluate.stored_results import StoredResults
from nearfar.index import SearchQuery, describe_hits
from nearfar.reports import html_templates
from nearfar.reports.comparison import render_comparison
from nearfar.reports.comparison_table import Comparison, ComparisonRow
from nearfar.reports.html_templates import TEMPLATE_FOLDER, render_template
from nearfar.reports.report import ReportContent, render_report
from nearfar.reports.report_samples import SampleNeighbors
from nearfar.reports.search import write_search_page

HOSTILE = ["<script>alert(1)</script>", "\"&'", "{{ 7 * 7 }}", "&lt;b&gt;", "\" onload=alert(1) x='"]
"""Names that would become elements, attributes, entities or template code if they were not escaped."""
ATTRIBUTES = {
    "alt", "aria-label", "charset", "class", "content", "controls", "cx", "cy", "d", "dy", "fill", "font-size", "href", "http-equiv",
    "id", "lang", "name", "opacity", "preload", "r", "rel", "role", "scope", "src", "stroke", "stroke-dasharray", "stroke-width", "style",
    "text-anchor", "title", "viewbox", "width", "x", "x1", "x2", "y", "y1", "y2",
}  # fmt: skip
"""Every attribute of the pages."""


def render_hostile_report(text: str) -> str:
    table = ResultTable(
        [{"representation": f"{text} {kind}", "baseline": kind != "trained", f"top {text}": 0.5} for kind in ("raw", "trained")],
        {"accuracies": {f"top {text}": text}, "notes": [text]},
    )
    card = Card(
        title=text, paper=f"{text} https://example.org/{text}", year=2020, modality=text, similarity=text, query=text, positive=text,
        negative=text, encoder=text, head=text, score=text, loss=text, equation=rf"\unknown {text}",
    )  # fmt: skip
    samples = [text, f"{text} 1"]
    labels = torch.tensor([0, 1])
    content = ReportContent(
        title=text, summary=text, card=card, table=table, log=[{"step": s, text: 1.0 * s} for s in range(3)], pairs=(samples, samples),
        map=project_to_2d(torch.eye(2), "pca", rng_key=RandomKey(0)), labels=labels, class_names=[text, f"{text} 1"],
        neighbors=SampleNeighbors([text], [samples], torch.ones(1, 2), labels[:1], labels[None]), spectra={text: [1.0, 0.5]},
        stored_config={text: {text: text}}, command=text, versions={text: text}, seconds=1.0,
    )  # fmt: skip
    return render_report(content)


def render_hostile_comparison(text: str) -> str:
    values = [{"top": 0.1 * i, "alignment": 0.2 * i, "uniformity": -0.3 * i} for i in (1, 2)]
    stored = StoredResults(1, 10, 5, ResultTable([{"top": 0.5}], {"accuracies": {"top": text}}))
    run = RunResults(Path(text), {}, stored, None)
    comparison = Comparison(
        rows=[ComparisonRow(text, tuple(values), (run, run)), ComparisonRow(f"{text} 1", tuple(values), (run, run))],
        baselines=[ComparisonRow(f"untrained encoder {text}", tuple(values))],
        differing_settings={text: [text, text]},
        incompatibilities=[text],
        notes=[text],
    )
    return render_comparison(comparison)


def render_hostile_search(text: str, folder: Path) -> str:
    folder.mkdir()
    sound = folder / f"{text.replace('/', '')}.wav"
    sound.write_bytes(b"RIFF\x24\x00\x00\x00WAVEfmt ")
    items = nearfar.index.RowTable.from_columns(
        [text, text, "row 2"], labels=[text, None, text], paths=[sound, folder / f"{text}.wav", sound]
    )
    index = nearfar.index.build_index(np.eye(3, dtype=np.float32), items, folder / "index")
    hits = describe_hits(index, index.search(np.eye(3, dtype=np.float32), 3))
    hits[0] = [hit | {"text": text} for hit in hits[0]]
    write_search_page(folder / "page.html", index, SearchQuery(np.eye(3, dtype=np.float32), text=text), [text] * 3, hits)
    return (folder / "page.html").read_text(encoding="utf-8")


def check_escaped(html: str, text: str, least: int) -> None:
    """Fail if a string of the data became an element or an attribute, or is not shown at least `least` times."""
    page = Page(html)
    assert page.open == []
    assert not {tag for tag, _ in page.elements} & {"script", "img"}
    assert {name for _, attributes in page.elements for name in attributes} <= ATTRIBUTES
    assert sum(text in shown for shown in page.text) >= least


@pytest.mark.parametrize("text", HOSTILE)
def test_reports_show_names_and_labels_literally(text):
    html = render_hostile_report(text)
    check_escaped(html, text, least=40)
    links = [attributes["href"] for tag, attributes in Page(html).elements if tag == "a"]
    assert all(link.startswith("https://example.org/") for link in links)


@pytest.mark.parametrize("text", HOSTILE)
def test_comparisons_show_names_literally(text):
    check_escaped(render_hostile_comparison(text), text, least=16)


@pytest.mark.parametrize("text", HOSTILE)
def test_search_pages_show_names_and_labels_literally(text, tmp_path):
    check_escaped(render_hostile_search(text, tmp_path / "search"), text, least=17)


def test_only_markup_is_inserted_as_html():
    pieces = [("<b>", False), (Markup("<b>bold</b>"), False)]
    macro = html_templates._build_environment().get_template("macros.html").module.linked_text
    assert macro(pieces) == "&lt;b&gt;<b>bold</b>"


def test_missing_values_of_templates_raise():
    with pytest.raises(UndefinedError, match="content"):
        render_template("report.html")


def test_style_sheets_hold_no_template_syntax():
    for path in TEMPLATE_FOLDER.glob("*.css"):
        assert not any(mark in path.read_text(encoding="utf-8") for mark in ("{{", "{%", "{#")), path.name


def test_templates_never_switch_escaping_off():
    for path in TEMPLATE_FOLDER.glob("*.html"):
        assert not re.search(r"\|\s*(safe|forceescape)|autoescape", path.read_text(encoding="utf-8")), path.name

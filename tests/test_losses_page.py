"""The page of losses: its lines of code give the losses, what it says of functions and methods exists, its figure is right."""

from __future__ import annotations

import csv
import importlib
import inspect
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from nearfar import losses, recipes, scores
from nearfar.core import UsageError
from nearfar.scores import Scores, cosine, euclidean

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.append(str(DOCS))
page, figure, lines, seen = map(importlib.import_module, ("losses_page", "losses_figure", "losses_lines", "losses_seen"))
ENTRIES = {entry.name: entry for entry in seen.entries()}
USES = list(csv.DictReader((DOCS / "loss_uses.csv").read_text().splitlines()))


def arguments_of(name, score):
    function = getattr(losses, name)
    bound = inspect.signature(function).bind(*seen.examples(function, score))
    bound.apply_defaults()
    line = lines.LINES[name]
    return function, line, bound, {p: bound.arguments[p] for p in inspect.signature(line).parameters}


def test_the_page_and_the_figure_are_fresh():
    assert page.losses_page() == (DOCS / "losses.md").read_text(), "run python docs/losses_page.py"
    assert figure.gradients_figure() == (DOCS / "losses.svg").read_text(), "run python docs/losses_page.py"


@pytest.mark.parametrize("name", lines.LINES)
def test_a_line_gives_the_loss_of_its_name(name):
    function, line, bound, mine = arguments_of(name, cosine)
    try:
        expected = function(*bound.args)
    except UsageError:
        function, line, bound, mine = arguments_of(name, euclidean)
        expected = function(*bound.args)
    torch.testing.assert_close(line(**mine), expected)
    assert expected.detach().abs().max() > 1e-3


@pytest.mark.parametrize("name", [name for name in lines.LINES if ENTRIES[name].asked and seen.EVERY not in ENTRIES[name].asked])
def test_a_line_needs_no_statistic_that_the_loss_does_not_ask_for(name):
    _, line, _, mine = arguments_of(name, euclidean if name == "lifted_structure_generalized" else cosine)
    with seen.recording() as asked:
        line(**mine)
    assert set(asked) <= set(ENTRIES[name].asked)


def test_every_line_is_written_out():
    written = lines.written_lines()
    assert list(written) == list(lines.LINES)
    assert written["info_nce"] == "S.all_lse - S.pos_sum / S.pos_count"
    assert not [code for code in written.values() if "|" in code or "`" in code]  # they stand in a Markdown table


def test_what_is_asked_of_a_table_is_seen_however_it_is_asked():
    assert ENTRIES["info_nce"].asked == ("all_lse", "pos_sum", "pos_count")
    assert ENTRIES["clip"].asked == ("all_lse", "pos_sum")  # by row_and_column_stats
    assert ENTRIES["uniformity"].asked == ("neg_lse",)  # by attribute
    assert ENTRIES["lifted_structure_generalized"].asked[0] == "pos_lse.at(-1)"
    assert ENTRIES["lmnn"].asked == (seen.EVERY, "pos_sum")
    assert seen.EVERY in ENTRIES["interpolated_bound"].asked  # by to_dense
    assert ENTRIES["barlow_twins"].asked == ()


def test_recording_leaves_the_class_as_it_was():
    before = (Scores.stats, Scores.to_dense, Scores.__post_init__)
    with pytest.raises(UsageError), seen.recording():
        losses.mine_hardest_negatives(Scores.from_lists(torch.zeros(2, 1), torch.zeros(2, 1)), num_negatives=0)
    assert before == (Scores.stats, Scores.to_dense, Scores.__post_init__)
    with seen.recording():
        assert Scores.stats is not before[0]


def test_every_function_has_an_entry_with_all_its_docstring_says():
    text = (DOCS / "losses.md").read_text()
    functions = {name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))}
    assert functions == set(ENTRIES)
    one_by_one = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text.split("## One by one")[1], re.MULTILINE | re.DOTALL))
    assert set(one_by_one) == functions
    for name in functions:
        doc = inspect.getdoc(getattr(losses, name)) or ""
        for label in ("Shapes", "Requirements", "Relations", "Reference"):
            said = len(re.findall(rf"^{label}[^:\n]*:", doc, re.MULTILINE))
            assert len(re.findall(rf"^\*\*{label}[^\n]*?:\*\*", one_by_one[name], re.MULTILINE)) == said, (name, label)
        assert one_by_one[name].count("$$") == 2 * doc.count(r"\["), name


def test_losses_are_told_from_other_parts():
    other = {name for name, entry in ENTRIES.items() if not entry.is_loss}
    assert {
        "build_class_scores", "sinkhorn", "whiten", "mine_hardest_negatives", "corrupt_triples", "sum_triplet_hinges",
        "estimate_concentrations",
    } <= other  # fmt: skip
    assert {"info_nce", "cpc", "batch_hard", "barlow_twins", "uda", "swav", "w_mse", "jsd_bound"} <= set(ENTRIES) - other


def test_formulas_are_whole_and_links_lead_somewhere():
    text = (DOCS / "losses.md").read_text()
    assert not re.search(r"\\[()\[\]]|0x[0-9a-f]{6}", text)
    without_code = re.sub(r"`[^`\n]*`", "", text)
    for formula in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", without_code, re.DOTALL):
        formula = "".join(formula)
        assert formula.count("{") == formula.count("}"), formula
        assert len(re.findall(r"\\left\b", formula)) == len(re.findall(r"\\right\b", formula)), formula
    anchors = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= anchors
    widths = [[line.count(" | ") for line in table.splitlines()] for table in re.findall(r"(?:^\| .*\n)+", text, re.MULTILINE)]
    assert all(len(set(width)) == 1 for width in widths), "a table has lines of different lengths"


def test_methods_name_functions_and_scores_that_exist():
    assert len({row["method"] for row in USES}) == len(USES) > 100
    for row in USES:
        assert row["title"]
        assert row["modality"]
        assert set(row["function"].split()) <= set(losses.__all__), row["method"]
        named = [name.removesuffix(" / tau") for name in row["score"].split(", ") if name]
        assert set(named) <= set(scores.__all__), row["method"]
        assert bool(row["function"]) <= bool(row["words"]), row["method"]


def test_recipes_speak_for_themselves():
    rows = {row[0]: row for row in page.uses()}
    assert set(recipes.list_methods()) <= set(rows)
    assert rows["barlow-twins"][5] == ["barlow_twins"]
    assert rows["moco-v2"][5] == ["info_nce"]  # used by the recipe it is made from
    assert rows["simclr"][3] == recipes.load_method("simclr").recipe_class.card.loss
    assert len(rows) == len(page.uses())


def test_gradients_have_their_closed_forms():
    losses_of = {name: loss for family in figure.FAMILIES.values() for name, loss in family.items()}
    s, of_pos, of_neg = figure.gradients(losses_of["info_nce"])
    others = torch.tensor(figure.NEGATIVES, dtype=torch.float64) / figure.TAU
    share = (s / figure.TAU).exp() / ((s / figure.TAU).exp() + others.exp().sum())
    torch.testing.assert_close(of_pos, (share - 1) / figure.TAU)
    s, of_pos, of_neg = figure.gradients(losses_of["sigmoid"])
    torch.testing.assert_close(of_pos, (s / figure.TAU).sigmoid() / figure.TAU - 1 / figure.TAU)
    torch.testing.assert_close(of_neg, (s / figure.TAU).sigmoid() / figure.TAU)
    s, of_pos, of_neg = figure.gradients(losses_of["batch_hard"])
    threshold = max(figure.NEGATIVES) + figure.MARGIN
    torch.testing.assert_close(of_pos, -(s < threshold).double())
    torch.testing.assert_close(of_neg, (s > max(figure.NEGATIVES[:-1])).double())


def test_the_figure_shows_what_the_page_says():
    found = {name: figure.gradients(loss) for family in figure.FAMILIES.values() for name, loss in family.items()}
    assert len(found) == 10
    for name, (_, of_pos, of_neg) in found.items():
        assert of_pos.max() <= 0, name
        assert (of_neg.min() < -0.05) == (name == "hard_negative"), name
    for name in ("debiased", "hard_negative"):
        assert found[name][1][-1] > -0.05 > found["info_nce"][1][-1]


def test_the_figure_is_well_formed_and_within_its_frame():
    root = ElementTree.fromstring(figure.gradients_figure())
    inside = lambda x, y: 0 <= x <= float(root.attrib["width"]) and 0 <= y <= float(root.attrib["height"])
    curves = [re.findall(r"([\d.]+),([\d.]+)", path.attrib["d"]) for path in root.iter("{http://www.w3.org/2000/svg}path")]
    assert sorted(map(len, curves)) == [1] * 10 + [160] * 20  # one legend stroke and two curves for each loss
    assert all(inside(float(x), float(y)) for curve in curves for x, y in curve)
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {name for family in figure.FAMILIES.values() for name in family} <= set(words)
    assert "prefers-color-scheme: dark" in figure.gradients_figure()

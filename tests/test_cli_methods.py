"""The commands `list` and `card`."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import get_args

import pytest

from nearfar.cli.commands.list import format_method_list
from nearfar.cli.main import main
from nearfar.core import Card
from nearfar.core.card import LossFamily
from nearfar.recipes import list_methods, load_method
from nearfar.reports.math_layout import get_width
from nearfar.reports.method_card import LINE_WIDTH

CARDS: dict[str, Card] = {name: load_method(name).recipe_class.card for name in list_methods()}


def run(argv: list[str], capsys) -> tuple[int, str, str]:
    code = main(argv)
    return code, *capsys.readouterr()


def names_of(argv: list[str], capsys) -> set[str]:
    code, out, err = run(["list", "--json", *argv], capsys)
    assert (code, err) == (0, "")
    return {row["name"] for row in json.loads(out)}


def test_list_shows_every_method_once_within_80_columns(capsys):
    code, out, err = run(["list"], capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(get_width, lines)) <= 80
    rows = [line.split(maxsplit=2) for line in lines if line.startswith("    ")]
    assert sorted(name for name, _, _ in rows) == list_methods()
    for name, year, title in rows:
        assert (int(year), title) == (CARDS[name].year, CARDS[name].title)
    assert lines[-1] == f"{len(CARDS)} methods. `nearfar card NAME` shows one."


def test_list_groups_by_modality_and_then_by_loss_family(capsys):
    modality = family = ""
    found, order = {}, []
    for line in run(["list"], capsys)[1].splitlines()[:-2]:
        if line.startswith("    "):
            found[line.split()[0]] = (modality, family)
        elif line.startswith("  "):
            family = line.strip()
            order.append((modality, get_args(LossFamily).index(family)))
        elif line:
            modality = line
    assert found == {name: (card.modality, card.family) for name, card in CARDS.items()}
    assert order == sorted(set(order))


def test_long_names_and_titles_are_never_cut():
    rows = [{"name": "n" * 50, "modality": "image", "family": "other", "year": 2020, "title": "t" * 70}]
    assert format_method_list(rows).splitlines()[-1] == f"    {'n' * 50}  2020  {'t' * 70}"


@pytest.mark.parametrize(
    ("argv", "matches"),
    [
        (["--modality", "text"], lambda card: card.modality == "text"),
        (["--similarity", "natural-clustering"], lambda card: "natural clustering" in card.similarity_type),
        (["--loss", "nce-and-softmax"], lambda card: card.family == "NCE and softmax"),
        (["--loss", "NCE and softmax"], lambda card: card.family == "NCE and softmax"),
        (["--head", "contextualization"], lambda card: "contextualization" in card.head_type),
        (["--year", "2020"], lambda card: card.year == 2020),
        (["--since", "2020"], lambda card: card.year >= 2020),
        (
            ["--modality", "image", "--head", "projection", "--since", "2019"],
            lambda card: card.modality == "image" and "projection" in card.head_type and card.year >= 2019,
        ),
    ],
)
def test_filters_keep_the_matching_methods(argv, matches, capsys):
    expected = {name for name, card in CARDS.items() if matches(card)}
    assert 0 < len(expected) < len(CARDS)
    assert names_of(argv, capsys) == expected


def test_json_rows_have_all_fields_of_the_card(capsys):
    rows = json.loads(run(["list", "--json", "--modality", "audio"], capsys)[1])
    for row in rows:
        card = dataclasses.asdict(CARDS[row["name"]])
        assert row == {"name": row["name"]} | {key: list(value) if isinstance(value, tuple) else value for key, value in card.items()}


def test_no_match_is_said_plainly_and_is_no_error(capsys):
    filters = ["--modality", "audio", "--loss", "clustering"]
    assert run(["list", *filters], capsys) == (0, "No method matches all of these filters. `nearfar list` shows all methods.\n", "")
    assert run(["list", "--json", *filters], capsys) == (0, "[]\n", "")
    assert names_of(["--year", "1066"], capsys) == set()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--modality", "imaje"], ["--modality", "'imaje'", "Did you mean 'image'", "audio", "words"]),
        (["--loss", "nce"], ["--loss", "Did you mean 'nce-and-softmax'", "energy-and-margin"]),
        (["--similarity", "transformations"], ["--similarity", "Did you mean 'data-transformation'", "multisensory"]),
        (["--head", "quantisation"], ["--head", "Did you mean 'quantization'"]),
        (["--year", "20x0"], ["--year", "'20x0' is not a whole number"]),
    ],
)
def test_a_wrong_filter_names_the_known_values(argv, words, capsys):
    code, out, err = run(["list", *argv], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in err


@pytest.mark.parametrize("name", list_methods())
def test_card_fits_80_columns_and_shows_no_latex(name, capsys):
    code, out, err = run(["card", name], capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(get_width, lines)) <= LINE_WIDTH == 80
    assert "\\" not in out
    assert "$" not in out
    card = CARDS[name]
    assert " ".join(lines[:2]).startswith(f"{card.title} ({card.modality}, {card.year}, ")
    flat = " ".join(out.split())
    for word in ("Claim:", "Relations:", "Reference:", "--paper", "--tiny", card.positive, card.loss, card.family, *card.head_type):
        assert word in flat, f"{name}: {word}"


def test_card_prints_latex_on_request(capsys):
    text = run(["card", "simclr", "--latex"], capsys)[1]
    assert r"$$\ell_{i,j} = -\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}" in text
    assert "ℓ" not in text
    assert "ℓᵢ,ⱼ = −log ───" in run(["card", "simclr"], capsys)[1]


def test_card_quotes_presets_as_flags(capsys):
    flat = " ".join(run(["card", "simclr"], capsys)[1].split())
    assert "--temperature 0.1 --data imagenet --encoder resnet50-imagenet --image-size 224 --batch-size 4096 --epochs 1000" in flat
    assert "--data digits --steps 300 --batch-size 256 --lr 0.002 Source:" in flat


def test_card_as_json_has_all_settings_of_the_presets(capsys):
    for name in ("simclr", "swav", "clip"):
        data, method = json.loads(run(["card", name, "--json"], capsys)[1]), load_method(name)
        for preset in ("paper", "tiny"):
            recipe, config = getattr(method, preset)
            expected = json.loads(json.dumps(dataclasses.asdict(recipe) | dataclasses.asdict(config)))
            assert data[f"{preset}_settings"] == expected
        assert data["equation"] == method.recipe_class.card.equation
        assert (data["family"], tuple(data["head_type"])) == (CARDS[name].family, CARDS[name].head_type)
        assert re.search(r"Claim:", data["text"])


def test_card_of_a_user_file_shows_its_equation(tmp_path, capsys):
    file = tmp_path / "own.py"
    file.write_text(
        "from dataclasses import dataclass, replace\nfrom nearfar.recipes.vision.simclr import SimCLR\n\n@dataclass(frozen=True)\n"
        "class Own(SimCLR):\n    '''Own.'''\n    card = replace(SimCLR.card, title='Own', equation=r'\\tau = \\frac12')\n"
    )
    out = run(["card", str(file)], capsys)[1]
    assert out.startswith("Own (image, 2020")
    assert "\n    τ = ½\n" in out
    assert "\n\\tau = \\frac12\n" in run(["card", str(file), "--latex"], capsys)[1]

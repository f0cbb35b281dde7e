"""Summaries of recipe files, read from their source: compared with the imported classes."""

from __future__ import annotations

import ast
import dataclasses
import time
from typing import Literal

import pytest

from nearfar.core import TrainConfig, UsageError
from nearfar.core.python_source import (
    evaluate_literal,
    evaluate_or_quote,
    find_definition,
    parse_file,
    read_class_literals,
    resolve_type,
)
from nearfar.core.setting_fields import format_type, list_fields
from nearfar.recipes import list_methods, load_method
from nearfar.recipes.method_summary import (
    PRESETS,
    find_method_summary,
    read_all_summaries,
    read_method_summary,
    read_recipe_file,
    summarize_method,
)

every_recipe = pytest.mark.parametrize("name", list_methods())


@every_recipe
def test_source_and_imported_class_agree(name):
    read, method = read_method_summary(name), load_method(name)
    kind = method.recipe_class
    assert read.name == name
    assert read.card == kind.card
    assert [setting.name for setting in read.settings] == [field.name for field in dataclasses.fields(kind)]
    for setting, field in zip(read.settings, list_fields(kind), strict=True):
        assert setting == field
        assert type(setting.default) is type(field.default)
        assert format_type(setting.kind) == format_type(field.kind)
        assert setting.full_help == field.full_help
    assert read.reported == method.reported
    assert read.source_path == method.source_path
    imported = summarize_method(method)
    assert read.text == imported.text
    assert (imported.card, imported.settings) == (read.card, read.settings)


@every_recipe
@pytest.mark.parametrize("preset", PRESETS)
def test_given_settings_of_presets_are_those_of_the_objects(name, preset):
    given = getattr(read_method_summary(name), preset)
    values, defaults = {}, {}
    for part in getattr(load_method(name), preset):
        for field in dataclasses.fields(part):
            values[field.name], defaults[field.name] = getattr(part, field.name), field.default
    changed = {key for key, value in values.items() if value != defaults[key]}
    assert changed <= given.keys()
    assert {key: values[key] for key in given} == given


def test_all_recipes_are_read_in_a_tenth_of_a_second():
    assert [summary.name for summary in read_all_summaries()] == list_methods()
    seconds = []
    for _ in range(5):
        parse_file.cache_clear()
        start = time.process_time()
        read_all_summaries()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1


def test_an_unknown_name_suggests_similar_ones():
    with pytest.raises(UsageError, match=r"unknown recipe 'simclrr'\. Did you mean 'simclr'"):
        read_method_summary("simclrr")


OWN = '''"""Own: a method of a user."""
from dataclasses import dataclass, replace
from nearfar.core import TrainConfig
from nearfar.recipes.vision.simclr import SimCLR

@dataclass(frozen=True)
class Own(SimCLR):
    card = replace(SimCLR.card, title="Own", equation=SimCLR.card.equation + " + 1")
    temperature: float = 1 / 8
    weights: tuple[int, ...] = (1, 2)
    """Weights
    of parts."""

paper = Own(temperature=0.5 * 2), TrainConfig(data=FOLDER, epochs=10 / 4)
'''


def test_a_user_file_is_imported(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("FOLDER", "'photos'"))
    summary = find_method_summary(str(file))
    assert (summary.name, summary.card.title, summary.card.year) == (str(file), "Own", 2020)
    assert summary.paper == {"temperature": 1.0, "data": "photos", "epochs": 2.5}
    assert {setting.name: setting.default for setting in summary.settings}["weights"] == (1, 2)


def test_inherited_fields_keep_their_place_help_and_type(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    summary = read_recipe_file("own", file)
    fields = {setting.name: setting for setting in summary.settings}
    assert list(fields) == ["dim", "temperature", "norm", "gray_prob", "min_crop_scale", "weights"]
    assert fields["temperature"].default == 0.125
    assert fields["temperature"].help.startswith("Temperature (tau in the equation).")
    assert fields["weights"].help == "Weights of parts."
    assert fields["norm"].kind == Literal["batch", "layer", "none"]
    assert summary.card.equation.endswith(r"/\tau)} + 1")


def test_expressions_that_are_not_literals_are_quoted(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assert read_recipe_file("own", file).paper == {"temperature": 1.0, "data": "FOLDER", "epochs": 2.5}


@pytest.mark.parametrize("text", ["3", "-2.5", "'a' 'b'", "None", "(1, 'x')", "{'a': [True]}", "1 / 800", "2 ** 3 - 1", "3 * (1 + 2)"])
def test_literals_have_the_values_of_python(text):
    assert evaluate_literal(ast.parse(text, mode="eval").body) == eval(text)


@pytest.mark.parametrize("text", ["open('x')", "SIZE", "[f(1)]", "1 + x"])
def test_code_is_never_run(text):
    node = ast.parse(text, mode="eval").body
    with pytest.raises(ValueError, match="malformed"):
        evaluate_literal(node)
    assert evaluate_or_quote(node) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", int),
        ("float | None", float | None),
        ("Literal['a', 'b']", Literal["a", "b"]),
        ("Literal['a'] | int", Literal["a"] | int),
        ("tuple[str, ...]", tuple[str, ...]),
        ("Norm", Literal["batch", "layer", "none"]),
        ("Local | None", tuple[int, ...] | None),
    ],
)
def test_annotations_become_types(text, expected, tmp_path):
    file = tmp_path / "module.py"
    file.write_text("from nearfar.heads import HeadNorm as Norm\nLocal = tuple[int, ...]\n")
    assert resolve_type(ast.parse(text, mode="eval").body, file) == expected


@pytest.mark.parametrize("text", ["dict[str, int]", "Unknown", "Thing"])
def test_other_annotations_are_rejected(text, tmp_path):
    file = tmp_path / "module.py"
    file.write_text("class Thing: ...\n")
    with pytest.raises(LookupError, match=text.split("[")[0]):
        resolve_type(ast.parse(text, mode="eval").body, file)


def test_definitions_are_followed_through_packages():
    node, path = find_definition("Pooling", parse_path("nearfar.encoders"))
    assert path.name == "text.py"
    assert ast.unparse(node) == "Literal['cls', 'mean', 'first-last']"


def parse_path(package: str):
    from nearfar.core.python_source import PACKAGE_FOLDER

    return PACKAGE_FOLDER / package.split(".")[1] / "__init__.py"


def test_class_literals_leave_out_computed_values(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("class Base: ...\nclass Kind(Base):\n    name = 'kind'\n    sizes: tuple = (1, 2)\n    made = tuple('ab')\n")
    assert read_class_literals(file, "name") == {"name": "kind", "sizes": (1, 2)}
    with pytest.raises(LookupError, match="no class that assigns 'title'"):
        read_class_literals(file, "title")


def test_settings_and_training_have_different_names():
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert not any(names & {setting.name for setting in summary.settings} for summary in read_all_summaries())

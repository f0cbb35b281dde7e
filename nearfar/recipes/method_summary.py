"""Summary of a recipe file, read from its source: card, settings, presets, published numbers.

    summary = read_method_summary("simclr")     0.5 ms; reading all recipes takes about 0.05 s
    summary.card.title, summary.settings        without importing the recipe, hence without torch

`nearfar list`, `nearfar card` and `nearfar fit RECIPE --help` use it. A custom recipe of a user is imported
instead (`find_method_summary`).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.core.card import Card
from nearfar.core.python_source import (
    evaluate_literal,
    evaluate_or_quote,
    find_class_with,
    find_definition,
    get_assigned_values,
    parse_file,
    resolve_type,
)
from nearfar.core.setting_fields import SettingField, list_fields, read_docs_below
from nearfar.recipes.recipe_files import list_recipe_files, raise_unknown_recipe

if TYPE_CHECKING:
    from nearfar.recipes.registry import Method

PRESETS = ("paper", "tiny")


@dataclass(frozen=True)
class MethodSummary:
    """Content of a recipe file, without the class."""

    name: str
    card: Card
    settings: tuple[SettingField, ...]
    """Hyperparameters of the recipe."""
    paper: dict[str, Any]
    """Published settings, of the recipe and of the training: those that the file gives."""
    tiny: dict[str, Any]
    """Settings of the quick-start preset: those that the file gives."""
    reported: dict[str, tuple[float, str]]
    """Published numbers and their sources."""
    text: str
    """Docstring of the file: claim, equation, requirements, relations, reference."""
    source_path: Path


def find_method_summary(name: str) -> MethodSummary:
    """Return the summary of a method, or of a user's Python file, which is imported.

    Raises:
        UsageError: if there is no such method, or if the file does not define exactly one `Recipe`.
    """
    if name.endswith(".py"):
        from nearfar.recipes.registry import load_method

        return summarize_method(load_method(name))
    return read_method_summary(name)


def summarize_method(method: Method) -> MethodSummary:
    """Build the summary of an imported method."""
    kind, module = method.recipe_class, sys.modules[method.recipe_class.__module__]
    return MethodSummary(
        name=method.name,
        card=kind.card,
        settings=tuple(list_fields(kind)),
        paper=_get_changed_settings(method.paper),
        tiny=_get_changed_settings(method.tiny),
        reported=method.reported,
        text=inspect.cleandoc(module.__doc__ or kind.__doc__ or ""),
        source_path=method.source_path,
    )


def _get_changed_settings(preset: tuple[Any, ...]) -> dict[str, Any]:
    """Return the settings of a preset that differ from their defaults."""
    given = [(setting, getattr(part, setting.name)) for part in preset for setting in list_fields(type(part))]
    return {setting.name: value for setting, value in given if value != setting.default}


def read_all_summaries() -> list[MethodSummary]:
    """Read the summaries of all methods, sorted by name."""
    return [read_recipe_file(name, path) for name, path in sorted(list_recipe_files().items())]


def read_method_summary(name: str) -> MethodSummary:
    """Read the summary of a method from its recipe file.

    Raises:
        UsageError: if there is no such method.
    """
    files = list_recipe_files()
    if name not in files:
        raise_unknown_recipe(name)
    return read_recipe_file(name, files[name])


def read_recipe_file(name: str, path: Path) -> MethodSummary:
    """Read the summary of a method from this recipe file."""
    tree, recipe = parse_file(path), find_class_with(path, "card")
    values = get_assigned_values(tree.body)
    paper, tiny = (_read_preset(values.get(preset)) for preset in PRESETS)
    return MethodSummary(
        name=name,
        card=_read_card(recipe, path),
        settings=tuple(_read_settings(recipe, path).values()),
        paper=paper,
        tiny=tiny,
        reported=evaluate_literal(values["reported"]) if "reported" in values else {},
        text=ast.get_docstring(tree) or ast.get_docstring(recipe) or "",
        source_path=path,
    )


def _read_card(recipe: ast.ClassDef, path: Path) -> Card:
    """Read `card = Card(…)` or `card = dataclasses.replace(Base.card, …)`."""
    call = get_assigned_values(recipe.body)["card"]
    if not isinstance(call, ast.Call):
        raise LookupError(f"{path}: the card is not a call of Card or of dataclasses.replace")
    given = {keyword.arg: _evaluate_card_value(keyword.value, path) for keyword in call.keywords if keyword.arg is not None}
    return dataclasses.replace(_evaluate_card_value(call.args[0], path), **given) if call.args else Card(**given)


def _evaluate_card_value(node: ast.expr, path: Path) -> Any:
    """Evaluate a literal, `Base.card`, `Base.card.equation`, or a sum of these."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _evaluate_card_value(node.left, path) + _evaluate_card_value(node.right, path)
    if not isinstance(node, ast.Attribute):
        return evaluate_literal(node)
    if isinstance(node.value, ast.Name) and node.attr == "card":
        return _read_card(*_find_class(node.value.id, path))
    return getattr(_evaluate_card_value(node.value, path), node.attr)


def _read_settings(recipe: ast.ClassDef, path: Path) -> dict[str, SettingField]:
    """Read the fields of a recipe and its bases, in the order of the dataclass."""
    found: dict[str, SettingField] = {}
    for base, where in _find_bases(recipe, path):
        found |= _read_settings(base, where)
    docs = read_docs_below(recipe.body)
    for node in recipe.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or _is_class_variable(node.annotation):
            continue
        name = node.target.id
        text = docs.get(name) or (found[name].help if name in found else "")
        default = None if node.value is None else evaluate_or_quote(node.value)
        found[name] = SettingField(name, resolve_type(node.annotation, path), default, text)
    return found


def _is_class_variable(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).startswith("ClassVar")


def _find_bases(recipe: ast.ClassDef, path: Path) -> Iterator[tuple[ast.ClassDef, Path]]:
    """Yield the base classes that are recipes themselves. `Recipe` has no settings."""
    for base in recipe.bases:
        if isinstance(base, ast.Name) and base.id != "Recipe":
            yield _find_class(base.id, path)


def _find_class(name: str, path: Path) -> tuple[ast.ClassDef, Path]:
    node, where = find_definition(name, path)
    if not isinstance(node, ast.ClassDef):
        raise LookupError(f"{path}: {name} is not a class")
    return node, where


def _read_preset(node: ast.expr | None) -> dict[str, Any]:
    """Read the keywords of `SimCLR(…), TrainConfig(…)`."""
    parts = node.elts if isinstance(node, ast.Tuple) else []
    found: dict[str, Any] = {}
    for part in parts:
        assert isinstance(part, ast.Call)
        found |= {keyword.arg: evaluate_or_quote(keyword.value) for keyword in part.keywords if keyword.arg is not None}
    return found

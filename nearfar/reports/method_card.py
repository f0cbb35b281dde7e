"""Content of a method's file as data and text, for `nearfar list` and `nearfar card`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import textwrap
from typing import Any

from nearfar.core import Card, Recipe, TrainConfig
from nearfar.core.setting_fields import SettingField, format_type, format_value, get_choices, list_fields
from nearfar.recipes import Method

LIST_FIELDS = ("title", "modality", "year", "paper", "loss")
"""Fields of the card in a list of methods."""
LINE_WIDTH = 110


def build_method_row(method: Method) -> dict[str, Any]:
    """Return a method as one row of a list."""
    return {"name": method.name} | {field: getattr(method.recipe_class.card, field) for field in LIST_FIELDS}


def as_dict(method: Method) -> dict[str, Any]:
    """Return the content of a method's file, ready for JSON."""
    return {
        "name": method.name,
        **dataclasses.asdict(method.recipe_class.card),
        "text": _text(method),
        "hyperparameters": [_hyperparameter(flag) for flag in list_fields(method.recipe_class)],
        "paper_settings": _all_settings(*method.paper),
        "reported": [{"what": what, "value": value, "source": source} for what, (value, source) in method.reported.items()],
        "tiny_settings": _all_settings(*method.tiny),
        "source": str(method.source_path),
    }


def as_text(method: Method) -> str:
    """Return the content of a method's file as text."""
    card = method.recipe_class.card
    sections = [
        f"{card.title} ({card.modality}, {card.year}, {card.paper})",
        _text(method),
        _section("In the terms of the survey", _places(card)),
        _section(
            f"Hyperparameters: flags of `nearfar fit {method.name}`", {_typed(f): f.full_help for f in list_fields(method.recipe_class)}
        ),
        _section("Settings of the paper: --paper", _get_changed_settings(*method.paper)),
        _section("Numbers of the paper", {what: f"{format_value(value)}  ({source})" for what, (value, source) in method.reported.items()}),
        _section("Quick-start preset: --tiny", _get_changed_settings(*method.tiny)),
        f"Source: {method.source_path}",
    ]
    return "\n\n".join(section for section in sections if section)


def _text(method: Method) -> str:
    """Return the docstring of the file: claim, equation, requirements, relations, reference."""
    return inspect.cleandoc(sys.modules[method.recipe_class.__module__].__doc__ or method.recipe_class.__doc__ or "")


def _places(card: Card) -> dict[str, str]:
    return {
        name: value for name, value in dataclasses.asdict(card).items() if name not in ("title", "paper", "year", "modality", "equation")
    }


def _typed(flag: SettingField) -> str:
    return f"{flag.dashed} {format_type(flag.kind)}"


def _hyperparameter(flag: SettingField) -> dict[str, Any]:
    return {
        "name": flag.name,
        "flag": flag.dashed,
        "type": format_type(flag.kind),
        "default": flag.default,
        "choices": get_choices(flag.kind),
        "help": flag.help,
    }


def _all_settings(recipe: Recipe, config: TrainConfig) -> dict[str, Any]:
    return dataclasses.asdict(recipe) | dataclasses.asdict(config)


def _get_changed_settings(*parts: Recipe | TrainConfig) -> dict[str, str]:
    """Return the settings that a preset changes."""
    given = [(f, getattr(part, f.name)) for part in parts for f in list_fields(type(part))]
    return {flag.dashed: format_value(value) for flag, value in given if value != flag.default}


def _section(title: str, lines: dict[str, str]) -> str:
    """Return a title with aligned, wrapped lines below it.

    The result is empty if there are no lines.
    """
    if not lines:
        return ""
    width = max(len(name) for name in lines)
    indent = " " * (width + 4)
    body = [textwrap.fill(text, LINE_WIDTH, initial_indent=f"  {name:{width}}  ", subsequent_indent=indent) for name, text in lines.items()]
    return "\n".join([title, *(line.rstrip() for line in body)])

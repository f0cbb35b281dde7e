"""What `nearfar list` and `nearfar card` say of a method: its file, read out, as data and as text."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import textwrap
from typing import Any

from nearfar.cli.flags import Flag, choices_of, flags_of, show, type_name
from nearfar.core import Card, Recipe, Run
from nearfar.recipes import Method

LISTED = ("title", "modality", "year", "paper", "loss")
"""Fields of the card that a list of methods shows."""
WIDTH = 110


def row(method: Method) -> dict[str, Any]:
    """A method as one row of a list."""
    return {"name": method.name} | {field: getattr(method.recipe.card, field) for field in LISTED}


def as_data(method: Method) -> dict[str, Any]:
    """All that a method's file says, ready for JSON."""
    return {
        "name": method.name,
        **dataclasses.asdict(method.recipe.card),
        "text": _text(method),
        "hyperparameters": [_hyperparameter(flag) for flag in flags_of(method.recipe)],
        "paper_settings": _all_settings(*method.paper),
        "reported": [{"what": what, "value": value, "source": source} for what, (value, source) in method.reported.items()],
        "tiny_settings": _all_settings(*method.tiny),
        "source": str(method.source),
    }


def as_text(method: Method) -> str:
    """The same for a reader."""
    card = method.recipe.card
    sections = [
        f"{card.title} ({card.modality}, {card.year}, {card.paper})",
        _text(method),
        _section("In the terms of the survey", _places(card)),
        _section(f"Hyperparameters: flags of `nearfar fit {method.name}`", {_typed(f): f.full_help for f in flags_of(method.recipe)}),
        _section("Settings of the paper: --paper", _changed(*method.paper)),
        _section("Numbers of the paper", {what: f"{show(value)}  ({source})" for what, (value, source) in method.reported.items()}),
        _section("Settings for a look within seconds: --tiny", _changed(*method.tiny)),
        f"Source: {method.source}",
    ]
    return "\n\n".join(section for section in sections if section)


def _text(method: Method) -> str:
    """The docstring of the file: claim, equation, requirements, relations, reference."""
    return inspect.cleandoc(sys.modules[method.recipe.__module__].__doc__ or method.recipe.__doc__ or "")


def _places(card: Card) -> dict[str, str]:
    return {
        name: value for name, value in dataclasses.asdict(card).items() if name not in ("title", "paper", "year", "modality", "equation")
    }


def _typed(flag: Flag) -> str:
    return f"{flag.dashed} {type_name(flag.kind)}"


def _hyperparameter(flag: Flag) -> dict[str, Any]:
    return {
        "name": flag.name,
        "flag": flag.dashed,
        "type": type_name(flag.kind),
        "default": flag.default,
        "choices": choices_of(flag.kind),
        "help": flag.help,
    }


def _all_settings(recipe: Recipe, run: Run) -> dict[str, Any]:
    return dataclasses.asdict(recipe) | dataclasses.asdict(run)


def _changed(*parts: Recipe | Run) -> dict[str, str]:
    """Settings that are not what they would be without the preset."""
    given = [(f, getattr(part, f.name)) for part in parts for f in flags_of(type(part))]
    return {flag.dashed: show(value) for flag, value in given if value != flag.default}


def _section(title: str, lines: dict[str, str]) -> str:
    """A title and aligned lines below it, wrapped; nothing where there are none."""
    if not lines:
        return ""
    width = max(len(name) for name in lines)
    indent = " " * (width + 4)
    body = [textwrap.fill(text, WIDTH, initial_indent=f"  {name:{width}}  ", subsequent_indent=indent) for name, text in lines.items()]
    return "\n".join([title, *(line.rstrip() for line in body)])

"""Content of a method's file as data and text, for `nearfar list` and `nearfar card`."""

from __future__ import annotations

import dataclasses
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from nearfar.core import Card, TrainConfig
from nearfar.core.setting_fields import SettingField, format_type, format_value, get_choices, list_fields
from nearfar.recipes.method_summary import MethodSummary
from nearfar.reports.unicode_math import latex_to_line, latex_to_text

LINE_WIDTH = 80
MAX_NAME_WIDTH = 24
"""Largest width of the left column. A longer name stands on a separate line."""
EQUATION_INDENT = "    "
INLINE_MATH = re.compile(r"\\\((.+?)\\\)|(?<![$\\])\$([^$\n]+)\$(?!\$)", re.DOTALL)
PLACES = ("similarity", "query", "positive", "negative", "encoder", "head", "score", "loss")
"""Fields of the card that describe a method in the survey's terms."""


def build_method_row(summary: MethodSummary) -> dict[str, Any]:
    """Return a method as one row of a list: name and fields of the card."""
    return {"name": summary.name, **dataclasses.asdict(summary.card)}


def as_dict(summary: MethodSummary) -> dict[str, Any]:
    """Return the content of a method's file, ready for JSON."""
    return {
        **build_method_row(summary),
        "text": summary.text,
        "hyperparameters": [_hyperparameter(setting) for setting in summary.settings],
        "paper_settings": _all_settings(summary, summary.paper),
        "reported": [{"what": what, "value": value, "source": source} for what, (value, source) in summary.reported.items()],
        "tiny_settings": _all_settings(summary, summary.tiny),
        "source": str(summary.source_path),
    }


def as_text(summary: MethodSummary, latex: bool = False) -> str:
    """Return the content of a method's file as text of at most 80 columns.

    Args:
        summary: the method.
        latex: keep equations in LaTeX instead of converting them to Unicode.
    """
    card = summary.card
    equation = card.equation if latex else textwrap.indent(latex_to_text(card.equation, LINE_WIDTH - 4), EQUATION_INDENT)
    sections = [
        _fill(f"{card.title} ({card.modality}, {card.year}, {card.paper})"),
        _wrap_text(summary.text, latex),
        "" if "$$" in summary.text else equation,
        _section("In the terms of the survey", _places(card)),
        _section(f"Settings: flags of `nearfar fit {summary.name}`", {_typed(s): s.full_help for s in summary.settings}),
        _flags_section("Settings of the paper: --paper", summary.paper),
        _section(
            "Numbers of the paper", {what: f"{format_value(value)}  ({source})" for what, (value, source) in summary.reported.items()}
        ),
        _flags_section("Quick-start preset: --tiny", summary.tiny),
        f"Source: {summary.source_path}",
    ]
    return "\n\n".join(section for section in sections if section)


def _wrap_text(text: str, latex: bool) -> str:
    """Wrap the paragraphs of a docstring. Equations become Unicode text unless `latex` is set."""
    return "\n\n".join(text_of for paragraph in re.split(r"\n\s*\n", text) if (text_of := _wrap_paragraph(paragraph, latex)))


def _wrap_paragraph(paragraph: str, latex: bool) -> str:
    if paragraph.startswith("$$"):
        lines = paragraph if latex else latex_to_text(paragraph.strip("$\n "), LINE_WIDTH - len(EQUATION_INDENT))
        return lines if latex else textwrap.indent(lines, EQUATION_INDENT)
    if not latex:
        paragraph = INLINE_MATH.sub(lambda found: latex_to_line(found[1] or found[2]), paragraph)
    keeps_lines = any(line.startswith((" ", "-", "*")) for line in paragraph.split("\n"))
    return "\n".join(map(_fill, paragraph.split("\n"))) if keeps_lines else _fill(paragraph)


def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(text, LINE_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _places(card: Card) -> dict[str, str]:
    listed = f"{card.family} (loss); {', '.join(card.similarity_type)} (similarity); {', '.join(card.head_type)} (head)"
    return {name: getattr(card, name) for name in PLACES} | {"listed under": listed}


def _typed(setting: SettingField) -> str:
    return f"{setting.dashed} {format_type(setting.kind)}"


def _hyperparameter(setting: SettingField) -> dict[str, Any]:
    return {
        "name": setting.name,
        "flag": setting.dashed,
        "type": format_type(setting.kind),
        "default": setting.default,
        "choices": get_choices(setting.kind),
        "help": setting.help,
    }


def _all_settings(summary: MethodSummary, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a preset, those that it does not give with their defaults."""
    return {setting.name: setting.default for setting in (*summary.settings, *list_fields(TrainConfig))} | dict(given)


def _flags_section(title: str, settings: Mapping[str, Any]) -> str:
    """Return a title with the settings below it, as flags on a command line."""
    return "\n".join([title, *_wrap_words(map(_write_flag, settings, settings.values()))]) if settings else ""


def _numbers_section(reported: Mapping[str, tuple[float, str]]) -> str:
    """Return the published numbers, one after the other, with their sources."""
    lines = [f"  {what}: {format_value(value)} ({source})" for what, (value, source) in reported.items()]
    return "\n".join(["Numbers of the paper", *(_fill(line, indent="    ") for line in lines)]) if lines else ""


def _write_flag(name: str, value: Any) -> str:
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{dashed}" if value else f"--no-{dashed}"
    return f"--{dashed} {shlex.quote(format_value(value))}"


def _wrap_words(words: Iterable[str]) -> list[str]:
    """Fill lines with words that may contain spaces. No word is broken."""
    lines = [" "]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > LINE_WIDTH and lines[-1].strip():
            lines.append(" ")
        lines[-1] += f" {word}"
    return lines


def _section(title: str, lines: Mapping[str, str]) -> str:
    """Return a title with aligned, wrapped lines below it.

    The result is empty if there are no lines.
    """
    if not lines:
        return ""
    width = min(max(len(name) for name in lines), MAX_NAME_WIDTH)
    return "\n".join([title, *(_write_definition(name, text, width) for name, text in lines.items())])


def _write_definition(name: str, text: str, width: int) -> str:
    indent = " " * (width + 4)
    first = f"  {name:{width}}  " if len(name) <= width else indent
    body = textwrap.fill(text, LINE_WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return (body if len(name) <= width else f"  {name}\n{body}").rstrip()

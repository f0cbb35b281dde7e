"""Command-line flags generated from dataclasses.

A field becomes a flag. The string below the field is the help text. The annotation checks the value.

    temperature: float = 0.5
    \"\"\"Temperature.\"\"\"            ->   --temperature FLOAT    Temperature. Default: 0.5.

`FlagParser.parse_given_flags` returns only the flags that the user gave. Callers can thus tell given values
from defaults, and presets stay in effect.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import textwrap
import types
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from nearfar.core.setting_fields import SettingField, format_type, list_fields


def read_value(kind: Any, text: str) -> Any:
    """Convert a word to the annotated type.

    Raises:
        argparse.ArgumentTypeError: if the word is not a value of the type. The message states the expected
            value.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _first_that_reads(args, text)
    if origin is tuple:
        return tuple(read_value(args[0], part) for part in text.split(","))
    if origin is Literal:
        return _choice(text, {str(choice): choice for choice in args})
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {'a whole' if kind is int else 'a finite'} number")
    return value


def _first_that_reads(kinds: tuple[Any, ...], text: str) -> Any:
    """Convert a word to the first type that accepts it.

    `X | None` accepts the word none. `int | float` gives an int if the word is one.
    """
    if types.NoneType in kinds and text == "none":
        return None
    *others, last = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others:
        with contextlib.suppress(argparse.ArgumentTypeError):
            return read_value(kind, text)
    return read_value(last, text)


def _choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        from nearfar.core.errors import suggest_similar_names

        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}.{suggest_similar_names(text, choices)}")
    return choices[text]


def get_argparse_options(kind: Any) -> dict[str, Any]:
    """Return the argparse options of a flag with values of this type."""
    return {"type": functools.partial(read_value, kind), "metavar": format_type(kind)}


class _HelpLayout(argparse.RawDescriptionHelpFormatter):
    """Layout of help texts: lines are wrapped at spaces, never within a flag."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=30)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap sentences. Indented lines, such as examples, stay as they are."""
        lines = [line if line.startswith(" ") else "\n".join(self._split_lines(line, width)) for line in text.split("\n")]
        return textwrap.indent("\n".join(lines), indent)


class FlagParser(argparse.ArgumentParser):
    """Argument parser with one-line errors and flag groups from dataclasses.

    Flags that are not given are absent from the result.
    """

    def __init__(self, command: str, usage: str, about: str, epilog: str | None = None):
        super().__init__(
            usage=f"{command} {usage}", description=about, epilog=epilog, formatter_class=_HelpLayout,
            add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS,
        )  # fmt: skip
        self.command = command
        self.full_help_flag = "--help"
        """Flag that shows all flags."""
        self.unsuggested: set[str] = set()
        """Flags that are accepted, but are never suggested for an unknown flag."""

    def add_common_flags(self) -> None:
        """Add the flags of every command.

        They come last in the help.
        """
        group = self.add_argument_group("talk")
        group.add_argument("-v", "--verbose", action="store_true", help="print more; errors come with a traceback")
        group.add_argument("-q", "--quiet", action="store_true", help="print errors and results only")
        group.add_argument("-h", "--help", action="store_true", help="show this help and exit")

    def add_field_flags(self, title: str, kind: type) -> None:
        """Add a group with one flag for each field of a dataclass."""
        flags = list_fields(kind)
        # argparse leaves out a group without flags and description.
        group = self.add_argument_group(title, None if flags else "none")
        for flag in flags:
            add_setting_flag(group, flag)

    def parse_given_flags(self, argv: Sequence[str], positional: str | None = None) -> dict[str, Any]:
        """Return the given flags by field name.

        Args:
            argv: the words after the command.
            positional: a word of argv that the caller has already parsed.

        Raises:
            UsageError: if a flag or a word is unknown.
            SystemExit: after --help.
        """
        if {"-h", "--help"} & set(argv):
            self.print_help()
            raise SystemExit(0)
        found, extra = self.parse_known_args(argv)
        if positional in extra:
            extra.remove(positional)
        if extra:
            self._refuse(extra)
        return vars(found)

    def _refuse(self, extra: list[str]) -> NoReturn:
        from nearfar.core.errors import suggest_similar_names

        flag = next((word.split("=")[0] for word in extra if word.startswith("-")), None)
        if flag is None:
            self.error(f"{extra[0]!r} is an unexpected argument; `{self.command} --help` shows the accepted arguments")
        options = [option for action in self._actions for option in action.option_strings if option not in self.unsuggested]
        known = [option[2:] for option in options if option.startswith("--")]
        near = suggest_similar_names(flag.lstrip("-"), known).replace(" '", " '--")  # compare without dashes
        self.error(f"unknown flag {flag}.{near} `{self.command} {self.full_help_flag}` shows all")

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message of argparse."""
        from nearfar.core.errors import UsageError

        raise UsageError(message.removeprefix("argument "))


def add_setting_flag(group: argparse._ActionsContainer, setting: SettingField, hidden: bool = False) -> None:
    """Add the flag of a setting to a parser or to a group of it.

    Args:
        group: parser or group.
        setting: field of a dataclass.
        hidden: accept the flag, but leave it out of the help.
    """
    text = argparse.SUPPRESS if hidden else setting.full_help.replace("%", "%%")
    if setting.kind is bool:
        group.add_argument(setting.dashed, action=argparse.BooleanOptionalAction, help=text)
    else:
        group.add_argument(setting.dashed, dest=setting.name, help=text, **get_argparse_options(setting.kind))

"""From dataclasses to flags: a field is a flag, the string under it is the help, its annotation checks the value.

    tau: float = 0.5
    \"\"\"Temperature.\"\"\"            ->   --tau FLOAT    Temperature. Default: 0.5.

Only flags that the user gave come back from `Parser.parse`: whoever holds presets can tell them from defaults.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import functools
import inspect
import math
import textwrap
import types
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

NAMES = {int: "INT", float: "FLOAT", str: "TEXT", bool: "BOOL", types.NoneType: "none"}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A field of a dataclass as the command line sees it."""

    name: str
    kind: Any
    default: Any
    help: str

    @property
    def dashed(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def full_help(self) -> str:
        """The help and the default, unless there is none to show or the help speaks of it already."""
        if self.default is None or self.default == "" or "default" in self.help.lower():
            return self.help
        return f"{self.help} Default: {show(self.default)}.".strip()


def flags_of(kind: type) -> list[Flag]:
    """The flags of a dataclass, in the order of its fields."""
    hints, docs = get_type_hints(kind), field_docs(kind)
    return [Flag(f.name, hints[f.name], _default(f), docs.get(f.name, "")) for f in dataclasses.fields(kind) if f.init]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The string literals under the fields of a class and of its bases, by field; read from the source."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # typed into an interpreter: there is no source, hence no help
            continue
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _string(below)):
                docs[field.target.id] = " ".join(text.split())
    return docs


def _string(node: ast.stmt) -> str | None:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def show(value: Any) -> str:
    """A value as a user would type it after its flag."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(show(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def type_name(kind: Any) -> str:
    """What may stand after the flag: INT, FLOAT, TEXT, {a,b}, INT|none, INT,INT,…"""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "{" + ",".join(str(choice) for choice in args) + "}"
    if origin in (Union, types.UnionType):
        return "|".join(type_name(member) for member in args)
    if origin is tuple:
        return f"{type_name(args[0])},{type_name(args[0])},…"
    if kind not in NAMES:
        raise TypeError(f"no flag can be made for the type {kind}")
    return NAMES[kind]


def choices_of(kind: Any) -> list[Any] | None:
    """The values a Literal accepts."""
    return list(get_args(kind)) if get_origin(kind) is Literal else None


def read_value(kind: Any, text: str) -> Any:
    """What a user typed as a value of the annotated type; `ArgumentTypeError` says what was expected instead."""
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
    """`X | None`: the word none, or an X; `int | float`: an int where it is one."""
    if types.NoneType in kinds and text == "none":
        return None
    *others, last = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others:
        with contextlib.suppress(argparse.ArgumentTypeError):
            return read_value(kind, text)
    return read_value(last, text)


def _choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        from nearfar.core.errors import did_you_mean

        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}.{did_you_mean(text, choices)}")
    return choices[text]


def value_of(kind: Any) -> dict[str, Any]:
    """What argparse must know of a flag that takes a value of this type."""
    return {"type": functools.partial(read_value, kind), "metavar": type_name(kind)}


class Parser(argparse.ArgumentParser):
    """argparse whose mistakes are one line, whose defaults are silence, and whose groups are dataclasses."""

    def __init__(self, command: str, usage: str, about: str, epilog: str | None = None):
        layout = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=30)
        super().__init__(
            usage=f"{command} {usage}", description=about, epilog=epilog, formatter_class=layout,
            add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS,
        )  # fmt: skip
        self.command = command

    def add_common(self) -> None:
        """The flags that every command has, last in its help."""
        group = self.add_argument_group("talk")
        group.add_argument("-v", "--verbose", action="store_true", help="say more; errors come with a traceback")
        group.add_argument("-q", "--quiet", action="store_true", help="say errors only; results are still printed")
        group.add_argument("-h", "--help", action="store_true", help="show this and stop")

    def add_fields(self, title: str, kind: type) -> None:
        """A group of flags, one for each field of a dataclass."""
        flags = flags_of(kind)
        group = self.add_argument_group(title, None if flags else "none")  # argparse leaves out a group that has nothing in it
        for flag in flags:
            text = flag.full_help.replace("%", "%%")
            if flag.kind is bool:
                group.add_argument(flag.dashed, action=argparse.BooleanOptionalAction, help=text)
            else:
                group.add_argument(flag.dashed, dest=flag.name, help=text, **value_of(flag.kind))

    def parse(self, argv: Sequence[str], positional: str | None = None) -> dict[str, Any]:
        """The flags given, by field name. `positional`: a word of argv that the caller has understood already."""
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
        from nearfar.core.errors import did_you_mean

        flag = next((word.split("=")[0] for word in extra if word.startswith("-")), None)
        if flag is None:
            self.error(f"{extra[0]!r} is one word too many; `{self.command} --help` shows what is understood")
        known = [option[2:] for action in self._actions for option in action.option_strings if option.startswith("--")]
        near = did_you_mean(flag.lstrip("-"), known).replace(" '", " '--")  # compared without dashes: those are alike in all flags
        self.error(f"unknown flag {flag}.{near} `{self.command} --help` shows all")

    def error(self, message: str) -> NoReturn:
        from nearfar.core.errors import UsageError

        raise UsageError(message.removeprefix("argument "))

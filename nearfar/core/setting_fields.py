"""Type, default and help text of the fields of a settings dataclass."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

TYPE_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", bool: "BOOL", types.NoneType: "none"}


@dataclasses.dataclass(frozen=True)
class SettingField:
    """Field of a dataclass as a command-line flag."""

    name: str
    kind: Any
    default: Any
    help: str

    @property
    def dashed(self) -> str:
        """Name of the command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def full_help(self) -> str:
        """Return the help text followed by the default.

        The default is left out if it is empty or if the help text mentions it.
        """
        if self.default is None or self.default == "" or "default" in self.help.lower():
            return self.help
        return f"{self.help} Default: {format_value(self.default)}.".strip()


def list_fields(kind: type) -> list[SettingField]:
    """List the fields of a dataclass as flags, in order."""
    hints, docs = get_type_hints(kind), read_field_docs(kind)
    return [SettingField(f.name, hints[f.name], _default(f), docs.get(f.name, "")) for f in dataclasses.fields(kind) if f.init]


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


@functools.cache
def read_field_docs(kind: type) -> dict[str, str]:
    """Return the string literals below the fields of a class and its bases, by field.

    The literals are read from the source.
    """
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # defined in an interpreter: no source, so no help
            continue
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        docs |= read_docs_below(body.body)
    return docs


def read_docs_below(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the string literals below the annotated names of a class body, by name."""
    docs: dict[str, str] = {}
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _string(below)):
            docs[field.target.id] = " ".join(text.split())
    return docs


def _string(node: ast.stmt) -> str | None:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def format_value(value: Any) -> str:
    """Format a value as a user types it after its flag."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(format_value(v) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_type(kind: Any) -> str:
    """Format a type for the help of a flag: INT, FLOAT, TEXT, {a,b}, INT|none, INT,INT,…"""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "{" + ",".join(str(choice) for choice in args) + "}"
    if origin in (Union, types.UnionType):
        return "|".join(format_type(member) for member in args)
    if origin is tuple:
        return f"{format_type(args[0])},{format_type(args[0])},…"
    if kind not in TYPE_NAMES:
        raise TypeError(f"cannot create a flag for the type {kind}")
    return TYPE_NAMES[kind]


def get_choices(kind: Any) -> list[Any] | None:
    """Return the values of a Literal type, or None for other types."""
    return list(get_args(kind)) if get_origin(kind) is Literal else None

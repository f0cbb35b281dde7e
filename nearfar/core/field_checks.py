"""Checks of settings when they are created, so that a wrong value raises an error."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nearfar.core.errors import UsageError, suggest_similar_names

POSITIVE = (math.ulp(0.0), math.inf)


def check_fields(settings: Any, limits: Mapping[str, tuple[float, float]], default_limits: tuple[float, float] | None = None) -> None:
    """Raise `UsageError` if a field has a wrong type, an unknown choice or an out-of-range number.

    Args:
        settings: Dataclass instance to check.
        limits: Smallest and largest value of each number, by field name. Both ends are allowed.
        default_limits: Limits of the numbers that are not in `limits`.
    """
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), to_flag(field.name)
        allowed = _alternatives(hints[field.name])
        if value is None and type(None) in allowed:
            continue
        _check_type(name, value, [a for a in allowed if a is not type(None)])
        low, high = limits.get(field.name) or default_limits or (-math.inf, math.inf)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not low <= value <= high:
            way_out = _way_out(type(settings), field.name, value) if default_limits and field.name not in limits else ""
            raise UsageError(f"{name} must be {_words(low, high)}, got {value}{way_out}")


def to_flag(name: str) -> str:
    """Return the command-line flag of a field name."""
    return "--" + name.replace("_", "-")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _check_type(name: str, value: Any, allowed: list[Any]) -> None:
    choices = [c for a in allowed if get_origin(a) is Literal for c in get_args(a)]
    kinds = tuple(k for a in allowed if get_origin(a) is not Literal for k in ((int, float) if a is float else (get_origin(a) or a,)))
    if choices and value not in choices and not (kinds and isinstance(value, kinds)):
        known = [str(c) for c in choices]
        raise UsageError(f"{name} must be one of {', '.join(known)}, got {value!r}.{suggest_similar_names(str(value), known)}")
    if kinds and not choices and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        raise UsageError(f"{name} must be of type {' or '.join(k.__name__ for k in kinds)}, got {value!r}")


def _words(low: float, high: float) -> str:
    start = "greater than 0" if low == POSITIVE[0] else f"at least {low:g}"
    return start if high == math.inf else f"{start} and at most {high:g}" if low > -math.inf else f"at most {high:g}"


def _way_out(recipe: type, name: str, value: float) -> str:
    """Return advice on widening the limits of a user's recipe.

    The advice is empty for recipes that ship with nearfar.
    """
    if recipe.__module__.startswith("nearfar."):
        return ""
    low = "0.0" if value == 0 else '-float("inf")'
    entry = f'"{name}": ({low}, float("inf"))'
    holder = next(kind for kind in recipe.__mro__ if "limits" in vars(kind))
    if holder is recipe:
        return f". To allow this value, add {entry} to the limits of {recipe.__name__}"
    inherited = f"**{holder.__name__}.limits, " if holder.limits else ""
    return f". To allow this value, write limits = {{{inherited}{entry}}} in the class {recipe.__name__}"

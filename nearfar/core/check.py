"""Settings are checked where they are made, so that a wrong one is an error and never a silent default."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nearfar.core.errors import UsageError, did_you_mean

POSITIVE = (math.ulp(0.0), math.inf)


def check_fields(settings: Any, limits: Mapping[str, tuple[float, float]], default: tuple[float, float] | None = None) -> None:
    """Every field has a value of its type; choices are among those offered; numbers lie within `limits` (both ends included).

    `default` are the limits of numbers that have none of their own.
    """
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), "--" + field.name.replace("_", "-")
        allowed = _alternatives(hints[field.name])
        if value is None and type(None) in allowed:
            continue
        _check_type(name, value, [a for a in allowed if a is not type(None)])
        low, high = limits.get(field.name) or default or (-math.inf, math.inf)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not low <= value <= high:
            raise UsageError(f"{name} must be {_words(low, high)}, got {value}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _check_type(name: str, value: Any, allowed: list[Any]) -> None:
    choices = [c for a in allowed if get_origin(a) is Literal for c in get_args(a)]
    kinds = tuple(k for a in allowed if get_origin(a) is not Literal for k in ((int, float) if a is float else (get_origin(a) or a,)))
    if choices and value not in choices and not (kinds and isinstance(value, kinds)):
        known = [str(c) for c in choices]
        raise UsageError(f"{name} must be one of {', '.join(known)}, got {value!r}.{did_you_mean(str(value), known)}")
    if kinds and not choices and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        raise UsageError(f"{name} must be of type {' or '.join(k.__name__ for k in kinds)}, got {value!r}")


def _words(low: float, high: float) -> str:
    start = "greater than 0" if low == POSITIVE[0] else f"at least {low:g}"
    return start if high == math.inf else f"{start} and at most {high:g}" if low > -math.inf else f"at most {high:g}"

"""Run-time type checker of the tests: beartype, with the shapes of jaxtyping.

`check_types` replaces `jaxtyping.jaxtyped`, which checks every argument twice and binds every call to a signature. That
took a third of the CPU time of the tests. The checks are the same: the types of all arguments and results, and within a
call one size for each name in a shape, such as n in "n d". For beartype an int is a float too (PEP 484).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping._storage import pop_shape_memo, push_shape_memo, shape_str

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
_hints_of_local_functions: dict[tuple[str, str], dict[str, Any]] = {}
"""Types of functions that are defined in functions. Python defines them, and so decorates them, in each call."""


def check_types(target: Any = None, *, typechecker: Any = None) -> Any:
    """Check the types in each call of a function, a method, a property or the constructor of a dataclass.

    The import hook of jaxtyping uses this function as a decorator: `@jaxtyped(typechecker=…)`.
    """
    if target is None:
        return check_types
    if isinstance(target, classmethod | staticmethod):
        return type(target)(check_types(target.__func__))
    if isinstance(target, property):
        return property(*(part and check_types(part) for part in (target.fget, target.fset, target.fdel)))
    if not isinstance(target, type):
        return _check_function(target)
    if dataclasses.is_dataclass(target) and not hasattr(target.__init__, "has_type_checks"):
        target.__init__ = _check_function(target.__init__)
    return target


def _check_function(function: types.FunctionType) -> Any:
    inner = checked(_copy_with_types(function))
    by_argument = any("{" in str(hint) for hint in function.__annotations__.values())  # a size such as {count}
    signature = inspect.signature(function) if by_argument else None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        memo = push_shape_memo({} if signature is None else _bind(signature, args, kwargs))
        try:
            return inner(*args, **kwargs)
        except BeartypeCallHintViolation as e:
            raise jaxtyping.TypeCheckError(f"{e}\n{shape_str(memo)}") from None
        finally:
            pop_shape_memo()

    call.has_type_checks = True  # type: ignore[attr-defined]
    return call


def _bind(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _copy_with_types(function: types.FunctionType) -> types.FunctionType:
    """Return a copy of a function whose annotations are types instead of strings."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = function.__kwdefaults__, function.__module__, function.__qualname__
    if "<locals>" not in function.__qualname__:
        copy.__annotations__ = _resolve(function)
        return copy
    place = function.__module__, function.__qualname__
    if place not in _hints_of_local_functions:
        _hints_of_local_functions[place] = _resolve(function)
    copy.__annotations__ = _hints_of_local_functions[place]
    return copy


def _resolve(function: types.FunctionType) -> dict[str, Any]:
    """Return the types of the annotations. Any stands for names that exist for static type checkers only."""
    found: dict[str, Any] = {}
    for name, hint in function.__annotations__.items():
        try:
            holder = types.SimpleNamespace(__annotations__={name: hint})
            found |= typing.get_type_hints(holder, function.__globals__, include_extras=True)
        except Exception:  # like jaxtyping: also shapes that do not parse
            found[name] = Any
    return found

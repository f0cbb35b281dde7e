"""Every function of `nearfar.losses`, run on a small example, and what it was seen to ask of its score table."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from nearfar import losses
from nearfar.core import RandomKey, UsageError
from nearfar.scores import Scores, Statistic, cosine, euclidean

SIZES = {"n": 8, "m": 9, "d": 4, "e": 12, "k": 3, "c": 5, "p": 2, "l": 3, "t": 2, "v": 2, "...": 4}
"""Letters of the shapes in signatures, for the small examples."""
EVERY = "every score"


@dataclass(frozen=True)
class Entry:
    """A function of `nearfar.losses`, and what came of running it."""

    name: str
    function: Callable[..., Any]
    asked: tuple[str, ...]
    is_loss: bool

    @property
    def kind(self) -> str:
        if not self.is_loss:
            return "Tables, choices of candidates and other parts"
        if not self.asked:
            return "Losses of vectors, logits or energies"
        return "Losses of every score of a row" if EVERY in self.asked else "Losses of row statistics"


@functools.cache
def entries() -> tuple[Entry, ...]:
    functions = {name: f for name in losses.__all__ if inspect.isfunction(f := getattr(losses, name))}
    return tuple(_run(name, function) for name, function in sorted(functions.items()))


def _run(name: str, function: Callable[..., Any]) -> Entry:
    """Cosines first; losses of distances refuse them."""
    try:
        result, asked = _recorded(function, cosine)
    except UsageError:
        result, asked = _recorded(function, euclidean)
    return Entry(name, function, asked, isinstance(result, Tensor) and result.requires_grad and result.dim() < 2)


def _recorded(function: Callable[..., Any], score: Any) -> tuple[Any, tuple[str, ...]]:
    with recording() as asked:
        result = function(*examples(function, score))
    return result, tuple(dict.fromkeys(asked))


@contextlib.contextmanager
def recording() -> Iterator[list[str]]:
    """What is asked of any table meanwhile: names of statistics, and `EVERY` where its scores are read."""
    asked: list[str] = []
    is_answering = False

    def noting(method: Callable[..., Any], is_dense: bool) -> Callable[..., Any]:
        def noted(S: Scores, *what: Any, **named: Any) -> Any:
            nonlocal is_answering
            if is_answering:  # a table that reads itself to answer
                return method(S, *what, **named)
            asked.extend([EVERY] if is_dense else map(_name, what))
            is_answering = True
            try:
                return method(S, *what, **named)
            finally:
                is_answering = False

        return noted

    with contextlib.ExitStack() as patches:
        for name in ("stats", "row_and_column_stats", "to_dense", "map_blocks"):
            patches.enter_context(mock.patch.object(Scores, name, noting(getattr(Scores, name), name in ("to_dense", "map_blocks"))))
        patches.enter_context(mock.patch.object(Scores, "__post_init__", _in_blocks(Scores.__post_init__)))
        yield asked


def _in_blocks(post_init: Callable[[Scores], None]) -> Callable[[Scores], None]:
    """Tables in blocks, like large ones: for small ones a loss may know a shorter way, past the statistics."""

    def noted(S: Scores) -> None:
        post_init(S)
        object.__setattr__(S, "rows_per_block", S.rows_per_block or SIZES["n"] // 2)

    return noted


def _name(what: Statistic) -> str:
    return f"{what.candidate_set}_{what.reduction}" + (f".at({what.power:g})" if what.power != 1 else "")


def examples(function: Callable[..., Any], score: Any = cosine) -> list[Any]:
    """Small arguments for the parameters that have no default, by the shapes in the signature."""
    found: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [_example(f"{parameter.name}{i}", parameter.annotation, score) for i in range(2)]
        elif parameter.default is parameter.empty:
            found.append(_example(parameter.name, parameter.annotation, score))
    return found


def _example(name: str, annotation: str, score: Any) -> Any:
    labels = torch.arange(SIZES["n"]) % 3
    if annotation == "Scores":
        return Scores.from_labels(_normal(name, [SIZES["n"], SIZES["d"]]), labels, score=score)
    if annotation == "Sequence[Clustering]":
        return [(_normal(f"{name}{i}", [3, SIZES["d"]]), torch.tensor([0.5, 1.0, 2.0]), labels) for i in range(2)]
    if annotation.startswith("Sequence["):
        return [_example(f"{name}{i}", annotation[len("Sequence[") : -1], score) for i in range(2)]
    if annotation in ("RandomKey", "int"):
        return RandomKey(0) if annotation == "RandomKey" else 7
    array = re.match(r"(Float|Int|Bool)\[Tensor, '([^']*)'\]", annotation)
    if array is None:
        return 0.5
    shape = [int(side) if side.isdigit() else SIZES.get(side.strip("*"), 3) for side in array[2].split()]
    if array[1] == "Float":
        return _normal(name, shape)
    numbers = torch.arange(math.prod(shape)).view(shape)
    return numbers % 3 if array[1] == "Int" else numbers % 2 == 0


def _normal(name: str, shape: list[int]) -> Tensor:
    return RandomKey(0)("example", name).normal(torch.arange(1), math.prod(shape)).double().view(shape).requires_grad_()

"""What an image operation is: a pure function of images, slots and a key, for the whole batch at once.

    op(x, slots, key)        x: (n, c, h, w) float32 in [0, 1]

Row i of the result depends on (x[i], slots[i], key) alone, so that chunks, ranks and worker processes see the
same views. No operation loops over samples: parameters are drawn as (n,) tensors on the device of the images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nearfar.core import Key, UsageError

Images = Float[Tensor, "n c h w"]
Resized = Float[Tensor, "n c h2 w2"]
Slots = Int[Tensor, " n"]
PerRow = Float[Tensor, " n"]


class Op(ABC):
    """An image operation: a filter (changes values), a motion (moves pixels) or a composition of those."""

    @abstractmethod
    def __call__(self, x: Images, slots: Slots, key: Key) -> Resized:
        """The images after the operation, with random numbers named by `key` and slot."""


@dataclass(frozen=True, kw_only=True)
class Filter(Op):
    """An operation on values that keeps the size of the images."""

    p: float = 1.0
    """Probability that a row is changed at all."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def apply(self, x: Images, slots: Slots, key: Key) -> Images:
        """Change every row of `x`."""

    def __call__(self, x: Images, slots: Slots, key: Key) -> Images:
        if self.p == 1:
            return self.apply(x, slots, key)
        chosen = choose(self.p, slots, key)
        if x.is_cuda:  # work on rows that are thrown away is cheaper than asking the device how many were chosen
            return torch.where(per_image(chosen), self.apply(x, slots, key), x)
        rows = chosen.nonzero()[:, 0]
        return x.index_copy(0, rows, self.apply(x.index_select(0, rows), slots[rows], key))


def choose(p: float, slots: Slots, key: Key) -> Bool[Tensor, " n"]:
    """Which rows an operation of probability `p` is applied to."""
    return key("chosen").uniform(slots) < p


def per_image(value: Tensor) -> Tensor:
    """`(n,)` as `(n, 1, 1, 1)`: one number for a whole image."""
    return value[:, None, None, None]


def between(low: float, high: float, unit: Tensor) -> Tensor:
    """Numbers of [0, 1) moved to [low, high)."""
    return low + (high - low) * unit


def check_probability(op: Op) -> None:
    p = getattr(op, "p", 1.0)
    if not 0 <= p <= 1:
        raise UsageError(f"{type(op).__name__}: p is a probability, between 0 and 1, got {p}")


def check_range(op: Op, name: str, lowest: float = 0.0, highest: float = float("inf")) -> None:
    """The field `name` is a pair (low, high) within [lowest, highest]."""
    low, high = getattr(op, name)
    if not lowest <= low <= high <= highest:
        raise UsageError(f"{type(op).__name__}: {name} is a pair (low, high) with {lowest} <= low <= high <= {highest}, got {(low, high)}")

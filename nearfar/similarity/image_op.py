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

from nearfar.core import RandomKey, UsageError

ImageTensor = Float[Tensor, "n c h w"]
ResizedImageTensor = Float[Tensor, "n c h2 w2"]
Slots = Int[Tensor, " n"]
RowValues = Float[Tensor, " n"]


class ImageOp(ABC):
    """An image operation: a filter (changes values), a motion (moves pixels) or a composition of those."""

    @abstractmethod
    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        """The images after the operation, with random numbers named by `rng_key` and slot."""


@dataclass(frozen=True, kw_only=True)
class Filter(ImageOp):
    """An operation on values that keeps the size of the images."""

    prob: float = 1.0
    """Probability that a row is changed at all."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        """Change every row of `x`."""

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        if self.prob == 1:
            return self.apply(x, slots, rng_key)
        chosen = draw_row_mask(self.prob, slots, rng_key)
        if x.is_cuda:  # work on rows that are thrown away is cheaper than asking the device how many were chosen
            return torch.where(as_image_shape(chosen), self.apply(x, slots, rng_key), x)
        rows = chosen.nonzero()[:, 0]
        return x.index_copy(0, rows, self.apply(x.index_select(0, rows), slots[rows], rng_key))


def draw_row_mask(prob: float, slots: Slots, rng_key: RandomKey) -> Bool[Tensor, " n"]:
    """Which rows an operation of probability `prob` is applied to."""
    return rng_key("chosen").uniform(slots) < prob


def as_image_shape(value: Tensor) -> Tensor:
    """`(n,)` as `(n, 1, 1, 1)`: one number for a whole image."""
    return value[:, None, None, None]


def scale_to_range(low: float, high: float, uniform: Tensor) -> Tensor:
    """Numbers of [0, 1) moved to [low, high)."""
    return low + (high - low) * uniform


def check_probability(op: ImageOp) -> None:
    p = getattr(op, "prob", 1.0)
    if not 0 <= p <= 1:
        raise UsageError(f"{type(op).__name__}: prob is a probability, between 0 and 1, got {p}")


def check_range(op: ImageOp, field_name: str, lowest: float = 0.0, highest: float = float("inf")) -> None:
    """The field `name` is a pair (low, high) within [lowest, highest]."""
    low, high = getattr(op, field_name)
    if not lowest <= low <= high <= highest:
        raise UsageError(
            f"{type(op).__name__}: {field_name} is a pair (low, high) with {lowest} <= low <= high <= {highest}, got {(low, high)}"
        )

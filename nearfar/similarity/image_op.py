"""Image operations: pure functions of images, slots and a random key, for a whole batch.

    op(x, slots, rng_key)    x: (n, c, h, w) float32 in [0, 1]

Row i of the result depends only on (x[i], slots[i], rng_key), so chunks, ranks and worker processes see the
same views. No operation loops over samples. Parameters are drawn as (n,) tensors on the device of the images.
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
    """Image operation.

    It is a filter (changes values), a geometric operation (moves pixels), or a composition.
    """

    @abstractmethod
    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        """Apply the operation, with random numbers determined by `rng_key` and slot."""


@dataclass(frozen=True, kw_only=True)
class Filter(ImageOp):
    """Operation on values that keeps the size of the images."""

    prob: float = 1.0
    """Probability that a row is changed."""

    def __post_init__(self):
        check_probability(self)

    @abstractmethod
    def apply(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        """Change every row of `x`."""

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ImageTensor:
        if self.prob == 1:
            return self.apply(x, slots, rng_key)
        chosen = draw_row_mask(self.prob, slots, rng_key)
        if x.is_cuda:  # computing all rows is cheaper than waiting for the number of chosen rows
            return torch.where(as_image_shape(chosen), self.apply(x, slots, rng_key), x)
        rows = chosen.nonzero()[:, 0]
        return x.index_copy(0, rows, self.apply(x.index_select(0, rows), slots[rows], rng_key))


def draw_row_mask(prob: float, slots: Slots, rng_key: RandomKey) -> Bool[Tensor, " n"]:
    """Draw the rows that an operation of probability `prob` applies to."""
    return rng_key("chosen").uniform(slots) < prob


def as_image_shape(value: Tensor) -> Tensor:
    """Reshape `(n,)` to `(n, 1, 1, 1)`, one number for each image."""
    return value[:, None, None, None]


def scale_to_range(low: float, high: float, uniform: Tensor) -> Tensor:
    """Scale numbers in [0, 1) to [low, high)."""
    return low + (high - low) * uniform


def check_probability(op: ImageOp) -> None:
    """Raise `UsageError` if the field `prob` is not between 0 and 1."""
    p = getattr(op, "prob", 1.0)
    if not 0 <= p <= 1:
        raise UsageError(f"{type(op).__name__}: prob must be a probability, between 0 and 1, got {p}")


def check_range(op: ImageOp, field_name: str, lowest: float = 0.0, highest: float = float("inf")) -> None:
    """Raise `UsageError` if a field is not a valid range.

    A valid range is a pair (low, high) within [lowest, highest].
    """
    low, high = getattr(op, field_name)
    if not lowest <= low <= high <= highest:
        raise UsageError(
            f"{type(op).__name__}: {field_name} must be a pair (low, high) with {lowest} <= low <= high <= {highest}, got {(low, high)}"
        )

"""Sequences of image operations, with adjacent geometric operations merged into one interpolation."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.core import RandomKey
from nearfar.similarity.image_op import ImageOp, ImageTensor, ResizedImageTensor, Slots
from nearfar.similarity.warp import GeometricOp, warp


@dataclass(frozen=True, init=False)
class Compose(ImageOp):
    """Sequence of operations, each with a sub-key for its position.

    Example: `Compose(Crop(32), Flip(), ColorJitter(0.4, 0.4, prob=0.8))`.

    Adjacent geometric operations with the same padding mode are merged (see `warp`). Merging does not change
    the random numbers.
    """

    ops: tuple[ImageOp, ...]

    def __init__(self, *ops: ImageOp):
        object.__setattr__(self, "ops", ops)

    def __call__(self, x: ImageTensor, slots: Slots, rng_key: RandomKey) -> ResizedImageTensor:
        motions: list[tuple[GeometricOp, RandomKey]] = []
        for position, op in enumerate(self.ops):
            if motions and not (isinstance(op, GeometricOp) and op.padding_mode == motions[0][0].padding_mode):
                x, motions = warp(x, slots, motions), []
            if isinstance(op, GeometricOp):
                motions.append((op, rng_key(position)))
            else:
                x = op(x, slots, rng_key(position))
        return warp(x, slots, motions) if motions else x

"""Operations one after another; motions in a row become one interpolation."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.core import RandomKey
from nearfar.similarity.image_op import ImageOp, ImageTensor, ResizedImageTensor, Slots
from nearfar.similarity.warp import GeometricOp, warp


@dataclass(frozen=True, init=False)
class Compose(ImageOp):
    """`Compose(Crop(32), Flip(), Jitter(0.4, 0.4, p=0.8))`: the operations in order, each with a sub-key for its position.

    Neighbouring motions that agree on what lies outside the image are merged (see `warp`); the random numbers are
    the same as if they were not.
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

"""Operations one after another; motions in a row become one interpolation."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.core import Key
from nearfar.similarity.image_op import Images, Op, Resized, Slots
from nearfar.similarity.warp import Motion, warp


@dataclass(frozen=True, init=False)
class Compose(Op):
    """`Compose(Crop(32), Flip(), Jitter(0.4, 0.4, p=0.8))`: the operations in order, each with a sub-key for its position.

    Neighbouring motions that agree on what lies outside the image are merged (see `warp`); the random numbers are
    the same as if they were not.
    """

    ops: tuple[Op, ...]

    def __init__(self, *ops: Op):
        object.__setattr__(self, "ops", ops)

    def __call__(self, x: Images, slots: Slots, key: Key) -> Resized:
        motions: list[tuple[Motion, Key]] = []
        for position, op in enumerate(self.ops):
            if motions and not (isinstance(op, Motion) and op.outside == motions[0][0].outside):
                x, motions = warp(x, slots, motions), []
            if isinstance(op, Motion):
                motions.append((op, key(position)))
            else:
                x = op(x, slots, key(position))
        return warp(x, slots, motions) if motions else x

"""The motions: crop, flip, pad-and-crop, rotation, shear, perspective, elastic warp.

Each answers one question: a point (x, y) of the result, where does it lie in the input? (See `warp`.)
"""

from __future__ import annotations

import functools
import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.core import Key, UsageError
from nearfar.similarity.image_op import PerRow, Slots, between, check_range
from nearfar.similarity.warp import Frame, Motion, Points, as_grid

Frames = tuple[Float[Tensor, "n 1"], Float[Tensor, "n 1"]]
"""Heights and widths of images that differ in size."""


@dataclass(frozen=True)
class Crop(Motion):
    """Random resized crop: a window of random area, shape and place, scaled to `size` x `size` (Szegedy et al. 2015).

    The share of the area is uniform in `scale`, the logarithm of width/height uniform in that of `ratio`; of ten
    draws the first that fits into the image is taken, and if none does, the first one cut to the image. Windows
    need not begin at whole pixels. There is no low-pass filter: meant for windows up to about twice `size`.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "scale", highest=1.0)
        check_range(self, "ratio", lowest=1e-3)
        if self.size < 1:
            raise UsageError(f"Crop: size is a number of pixels, at least 1, got {self.size}")

    def resized(self, frame: Frame) -> Frame:
        return self.size, self.size

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        (width, height), (x, y) = self.windows(slots, key, frame)
        return points[0] * each(width) + each(x), points[1] * each(height) + each(y)

    def boxes(self, slots: Slots, key: Key, frames: Int[Tensor, "n 2"]) -> Float[Tensor, "n 4"]:
        """Left, top, right and bottom of the same windows, as shares of images that are `frames` high and wide."""
        high, wide = frames.float()[..., None].unbind(1)
        (width, height), (x, y) = self.windows(slots, key, (high, wide))
        return (1 + torch.stack((x - width, y - height, x + width, y + height), dim=1)) / 2

    def windows(self, slots: Slots, key: Key, frame: Frame | Frames) -> tuple[tuple[PerRow, PerRow], tuple[PerRow, PerRow]]:
        """Width and height of the windows as shares of the image's, and their centres' x and y."""
        (width, height), place = self.sides(slots, key, frame), 2 * key("place").uniform(slots, 2) - 1
        return (width, height), (place[:, 0] * (1 - width), place[:, 1] * (1 - height))

    def sides(self, slots: Slots, key: Key, frame: Frame | Frames, tries: int = 10) -> tuple[PerRow, PerRow]:
        """Width and height of the windows as shares of the image's."""
        u = key("window").uniform(slots, 2, tries)
        area = between(*self.scale, u[:, 0])
        shape = torch.exp(between(math.log(self.ratio[0]), math.log(self.ratio[1]), u[:, 1])) * frame[0] / frame[1]
        sides = torch.stack(((area * shape).sqrt(), (area / shape).sqrt()))
        fits = (sides <= 1).all(0)
        first = fits.int().argmax(1, keepdim=True)
        width, height = sides.clamp(max=1).gather(2, first.expand(2, -1, 1))[..., 0]
        return width, height


@dataclass(frozen=True)
class Flip(Motion):
    """Mirror left and right."""

    _: KW_ONLY
    p: float = 0.5

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        return -points[0], points[1]


@dataclass(frozen=True)
class PadCrop(Motion):
    """Pad by `pad` pixels on every side and cut out a window of the old size at a random whole-pixel place.

    With zeros around, the usual augmentation of CIFAR classifiers; with `outside="border"`, DrQ's random shift.
    """

    pad: int = 4
    _: KW_ONLY
    outside: Literal["border", "reflection", "zeros"] = "zeros"

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        shift = key("shift").integers(slots, 2 * self.pad + 1, 2) - self.pad
        return points[0] + each(shift[:, 0] * (2 / frame[1])), points[1] + each(shift[:, 1] * (2 / frame[0]))


@dataclass(frozen=True)
class Rotate(Motion):
    """Turn about the centre by an angle uniform in [-degrees, degrees], positive angles counter-clockwise."""

    degrees: float = 15.0

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        angle = each(torch.deg2rad(between(-self.degrees, self.degrees, key("angle").uniform(slots))))
        aspect = frame[1] / frame[0]
        (x, y), cos, sin = points, angle.cos(), angle.sin()
        return cos * x - sin / aspect * y, sin * aspect * x + cos * y


@dataclass(frozen=True)
class Shear(Motion):
    """Slant both axes about the centre, each by its own angle uniform in [-degrees, degrees]."""

    degrees: float = 10.0

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        slant = torch.deg2rad(between(-self.degrees, self.degrees, key("angle").uniform(slots, 2))).tan()
        aspect = frame[1] / frame[0]
        (x, y), along_x, along_y = points, each(slant[:, 0]), each(slant[:, 1])
        return x + along_x / aspect * y, along_y * aspect * x + y


@dataclass(frozen=True)
class Perspective(Motion):
    """See the image from aside: a random quadrilateral inside it is stretched to the whole frame.

    Each corner of the quadrilateral lies inward of the image's own by shares of half a side that are uniform in
    [0, distortion]; below 2/3 it is always convex.
    """

    distortion: float = 0.3

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.distortion < 2 / 3:
            raise UsageError(f"Perspective: distortion is at least 0 and below 2/3, got {self.distortion}")

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        (x, y), (affine, g) = points, square_to_quad(self.corners(slots, key))
        (a, b, c), (d, e, f) = (map(each, row.unbind(1)) for row in affine.unbind(1))
        depth = each(g[:, 0]) * x + each(g[:, 1]) * y + 1
        return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth

    def corners(self, slots: Slots, key: Key) -> Float[Tensor, "n 4 2"]:
        """Top left, top right, bottom right, bottom left, each (x, y)."""
        return square(slots.device) * (1 - self.distortion * key("corners").uniform(slots, 4, 2))


@dataclass(frozen=True)
class Elastic(Motion):
    """Bend as rubber does: every point moves by a smooth random field (Simard et al. 2003).

    The field is normal noise of standard deviation `pixels` at `knots` x `knots` knots that span the image,
    with bicubic interpolation between them. It tears where neighbouring knots move farther than they are apart.
    """

    pixels: float = 1.0
    knots: int = 4

    def pull(self, points: Points, slots: Slots, key: Key, frame: Frame) -> Points:
        noise = self.pixels * key("field").normal(slots, 2, self.knots, self.knots)
        grid = as_grid(points)
        field = F.grid_sample(noise, grid.expand(len(noise), *grid.shape[1:]), mode="bicubic", padding_mode="border", align_corners=True)
        return points[0] + field[:, 0] * (2 / frame[1]), points[1] + field[:, 1] * (2 / frame[0])


def each(value: PerRow) -> Float[Tensor, "n 1 1"]:
    """One number for all points of a row's image."""
    return value[:, None, None]


@functools.lru_cache
def square(device: torch.device) -> Float[Tensor, "4 2"]:
    """Corners of the frame; kept, because copying them to a device anew would wait for it."""
    return torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], device=device)


def square_to_quad(corners: Float[Tensor, "n 4 2"]) -> tuple[Float[Tensor, "n 2 3"], Float[Tensor, "n 2"]]:
    """(A, g) of the projective map from the square [-1, 1]^2 to quadrilaterals: p -> A (p, 1) / (g . p + 1).

    The numerator N(p) = A (p, 1) is affine, so its values at the square's corners c_i obey N0 - N1 + N2 - N3 = 0,
    and they are N_i = (1 + g . c_i) P_i: two linear equations for g, and then A from the N_i (Heckbert 1989).
    """
    c = square(corners.device)
    sign = c.prod(1)
    twist = torch.einsum("i,nij->nj", sign, corners)
    u, v = torch.einsum("i,ik,nij->knj", sign, c, corners)
    g = torch.stack((cross(v, twist), cross(twist, u)), dim=1) / cross(u, v)[:, None]
    numerators = corners * (1 + g @ c.T)[..., None]
    slopes = torch.einsum("nij,ik->njk", numerators, c) / 4
    return torch.cat((slopes, numerators.mean(1)[..., None]), dim=2), g


def cross(a: Float[Tensor, "n 2"], b: Float[Tensor, "n 2"]) -> PerRow:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]

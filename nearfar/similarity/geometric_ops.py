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

from nearfar.core import RandomKey, UsageError
from nearfar.similarity.image_op import RowValues, Slots, check_range, scale_to_range
from nearfar.similarity.warp import GeometricOp, ImageSize, Points, as_grid

ImageSizes = tuple[Float[Tensor, "n 1"], Float[Tensor, "n 1"]]
"""Heights and widths of images that differ in size."""


@dataclass(frozen=True)
class Crop(GeometricOp):
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

    def get_output_size(self, image_size: ImageSize) -> ImageSize:
        return self.size, self.size

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        (width, height), (x, y) = self.draw_windows(slots, rng_key, image_size)
        return points[0] * as_point_shape(width) + as_point_shape(x), points[1] * as_point_shape(height) + as_point_shape(y)

    def draw_boxes(self, slots: Slots, rng_key: RandomKey, image_sizes: Int[Tensor, "n 2"]) -> Float[Tensor, "n 4"]:
        """Left, top, right and bottom of the same windows, as shares of images that are `frames` high and wide."""
        high, wide = image_sizes.float()[..., None].unbind(1)
        (width, height), (x, y) = self.draw_windows(slots, rng_key, (high, wide))
        return (1 + torch.stack((x - width, y - height, x + width, y + height), dim=1)) / 2

    def draw_windows(
        self, slots: Slots, rng_key: RandomKey, image_size: ImageSize | ImageSizes
    ) -> tuple[tuple[RowValues, RowValues], tuple[RowValues, RowValues]]:
        """Width and height of the windows as shares of the image's, and their centres' x and y."""
        (width, height), place = self.draw_window_sizes(slots, rng_key, image_size), 2 * rng_key("place").uniform(slots, 2) - 1
        return (width, height), (place[:, 0] * (1 - width), place[:, 1] * (1 - height))

    def draw_window_sizes(
        self, slots: Slots, rng_key: RandomKey, image_size: ImageSize | ImageSizes, tries: int = 10
    ) -> tuple[RowValues, RowValues]:
        """Width and height of the windows as shares of the image's."""
        u = rng_key("window").uniform(slots, 2, tries)
        area = scale_to_range(*self.scale, u[:, 0])
        shape = torch.exp(scale_to_range(math.log(self.ratio[0]), math.log(self.ratio[1]), u[:, 1])) * image_size[0] / image_size[1]
        sides = torch.stack(((area * shape).sqrt(), (area / shape).sqrt()))
        fits = (sides <= 1).all(0)
        first = fits.int().argmax(1, keepdim=True)
        width, height = sides.clamp(max=1).gather(2, first.expand(2, -1, 1))[..., 0]
        return width, height


@dataclass(frozen=True)
class Flip(GeometricOp):
    """Mirror left and right."""

    _: KW_ONLY
    prob: float = 0.5

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        return -points[0], points[1]


@dataclass(frozen=True)
class PadCrop(GeometricOp):
    """Pad by `pad` pixels on every side and cut out a window of the old size at a random whole-pixel place.

    With zeros around, the usual augmentation of CIFAR classifiers; with `outside="border"`, DrQ's random shift.
    """

    pad: int = 4
    _: KW_ONLY
    padding_mode: Literal["border", "reflection", "zeros"] = "zeros"

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        shift = rng_key("shift").integers(slots, 2 * self.pad + 1, 2) - self.pad
        return points[0] + as_point_shape(shift[:, 0] * (2 / image_size[1])), points[1] + as_point_shape(shift[:, 1] * (2 / image_size[0]))


@dataclass(frozen=True)
class Rotate(GeometricOp):
    """Turn about the centre by an angle uniform in [-degrees, degrees], positive angles counter-clockwise."""

    degrees: float = 15.0

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        angle = as_point_shape(torch.deg2rad(scale_to_range(-self.degrees, self.degrees, rng_key("angle").uniform(slots))))
        aspect = image_size[1] / image_size[0]
        (x, y), cos, sin = points, angle.cos(), angle.sin()
        return cos * x - sin / aspect * y, sin * aspect * x + cos * y


@dataclass(frozen=True)
class Shear(GeometricOp):
    """Slant both axes about the centre, each by its own angle uniform in [-degrees, degrees]."""

    degrees: float = 10.0

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        slant = torch.deg2rad(scale_to_range(-self.degrees, self.degrees, rng_key("angle").uniform(slots, 2))).tan()
        aspect = image_size[1] / image_size[0]
        (x, y), along_x, along_y = points, as_point_shape(slant[:, 0]), as_point_shape(slant[:, 1])
        return x + along_x / aspect * y, along_y * aspect * x + y


@dataclass(frozen=True)
class Perspective(GeometricOp):
    """See the image from aside: a random quadrilateral inside it is stretched to the whole frame.

    Each corner of the quadrilateral lies inward of the image's own by shares of half a side that are uniform in
    [0, distortion]; below 2/3 it is always convex.
    """

    distortion: float = 0.3

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.distortion < 2 / 3:
            raise UsageError(f"Perspective: distortion is at least 0 and below 2/3, got {self.distortion}")

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        (x, y), (affine, g) = points, compute_projective_map(self.draw_corners(slots, rng_key))
        (a, b, c), (d, e, f) = (map(as_point_shape, row.unbind(1)) for row in affine.unbind(1))
        depth = as_point_shape(g[:, 0]) * x + as_point_shape(g[:, 1]) * y + 1
        return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth

    def draw_corners(self, slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n 4 2"]:
        """Top left, top right, bottom right, bottom left, each (x, y)."""
        return get_image_corners(slots.device) * (1 - self.distortion * rng_key("corners").uniform(slots, 4, 2))


@dataclass(frozen=True)
class Elastic(GeometricOp):
    """Bend as rubber does: every point moves by a smooth random field (Simard et al. 2003).

    The field is normal noise of standard deviation `pixels` at `knots` x `knots` knots that span the image,
    with bicubic interpolation between them. It tears where neighbouring knots move farther than they are apart.
    """

    std_pixels: float = 1.0
    knots: int = 4

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        noise = self.std_pixels * rng_key("field").normal(slots, 2, self.knots, self.knots)
        grid = as_grid(points)
        field = F.grid_sample(noise, grid.expand(len(noise), *grid.shape[1:]), mode="bicubic", padding_mode="border", align_corners=True)
        return points[0] + field[:, 0] * (2 / image_size[1]), points[1] + field[:, 1] * (2 / image_size[0])


def as_point_shape(value: RowValues) -> Float[Tensor, "n 1 1"]:
    """One number for all points of a row's image."""
    return value[:, None, None]


@functools.lru_cache
def get_image_corners(device: torch.device) -> Float[Tensor, "4 2"]:
    """Corners of the frame; kept, because copying them to a device anew would wait for it."""
    return torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], device=device)


def compute_projective_map(corners: Float[Tensor, "n 4 2"]) -> tuple[Float[Tensor, "n 2 3"], Float[Tensor, "n 2"]]:
    """(A, g) of the projective map from the square [-1, 1]^2 to quadrilaterals: p -> A (p, 1) / (g . p + 1).

    The numerator N(p) = A (p, 1) is affine, so its values at the square's corners c_i obey N0 - N1 + N2 - N3 = 0,
    and they are N_i = (1 + g . c_i) P_i: two linear equations for g, and then A from the N_i (Heckbert 1989).
    """
    c = get_image_corners(corners.device)
    sign = c.prod(1)
    twist = torch.einsum("i,nij->nj", sign, corners)
    u, v = torch.einsum("i,ik,nij->knj", sign, c, corners)
    g = torch.stack((cross_product(v, twist), cross_product(twist, u)), dim=1) / cross_product(u, v)[:, None]
    numerators = corners * (1 + g @ c.T)[..., None]
    slopes = torch.einsum("nij,ik->njk", numerators, c) / 4
    return torch.cat((slopes, numerators.mean(1)[..., None]), dim=2), g


def cross_product(a: Float[Tensor, "n 2"], b: Float[Tensor, "n 2"]) -> RowValues:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]

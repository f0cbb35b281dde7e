"""Geometric operations: crop, flip, pad-and-crop, rotation, shear, perspective, elastic warp.

Each operation maps a point (x, y) of the result to a point of the input (see `nearfar.similarity.warp`).
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
"""Heights and widths of images of different sizes."""


@dataclass(frozen=True)
class Crop(GeometricOp):
    """Random resized crop (Szegedy et al. 2015).

    A random window is scaled to `size` x `size`. The share of the area is uniform in `scale`. The logarithm
    of width/height is uniform between the logarithms of `ratio`. Of ten draws, the first that fits into the
    image is used. If none fits, the first draw is clipped to the image. Windows need not begin at whole
    pixels. There is no low-pass filter, so windows should be at most about twice `size`.
    """

    size: int
    """Side of the result in pixels."""
    scale: tuple[float, float] = (0.08, 1.0)
    """Range of the window area as a share of the image area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of width/height of the window."""

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "scale", highest=1.0)
        check_range(self, "ratio", lowest=1e-3)
        if self.size < 1:
            raise UsageError(f"Crop: size must be a number of pixels, at least 1, got {self.size}")

    def get_output_size(self, image_size: ImageSize) -> ImageSize:
        return self.size, self.size

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        (width, height), (x, y) = self.draw_windows(slots, rng_key, image_size)
        return points[0] * as_point_shape(width) + as_point_shape(x), points[1] * as_point_shape(height) + as_point_shape(y)

    def draw_boxes(self, slots: Slots, rng_key: RandomKey, image_sizes: Int[Tensor, "n 2"]) -> Float[Tensor, "n 4"]:
        """Draw the boxes of the same windows, for images of different sizes.

        Args:
            slots: `(n,)` slots that name the random numbers.
            rng_key: random key.
            image_sizes: `(n, 2)` height and width of each image.

        Returns:
            `(n, 4)` left, top, right and bottom, as shares of the image sides.
        """
        high, wide = image_sizes.float()[..., None].unbind(1)
        (width, height), (x, y) = self.draw_windows(slots, rng_key, (high, wide))
        return (1 + torch.stack((x - width, y - height, x + width, y + height), dim=1)) / 2

    def draw_windows(
        self, slots: Slots, rng_key: RandomKey, image_size: ImageSize | ImageSizes
    ) -> tuple[tuple[RowValues, RowValues], tuple[RowValues, RowValues]]:
        """Draw windows for the images.

        Returns:
            Width and height as shares of the image sides, and x and y of the centers in normalized
            coordinates.
        """
        (width, height), place = self.draw_window_sizes(slots, rng_key, image_size), 2 * rng_key("place").uniform(slots, 2) - 1
        return (width, height), (place[:, 0] * (1 - width), place[:, 1] * (1 - height))

    def draw_window_sizes(
        self, slots: Slots, rng_key: RandomKey, image_size: ImageSize | ImageSizes, tries: int = 10
    ) -> tuple[RowValues, RowValues]:
        """Draw width and height of the windows as shares of the image sides."""
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
    """Horizontal flip."""

    _: KW_ONLY
    prob: float = 0.5

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        return -points[0], points[1]


@dataclass(frozen=True)
class PadCrop(GeometricOp):
    """Padding on every side, then a random crop.

    The padding is `pad` pixels wide, and the crop has the old size. The crop starts at a whole pixel. With
    zero padding, this is the usual augmentation of CIFAR classifiers. With `padding_mode="border"`, it is
    DrQ's random shift.
    """

    pad: int = 4
    """Padding in pixels."""
    _: KW_ONLY
    padding_mode: Literal["border", "reflection", "zeros"] = "zeros"

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        shift = rng_key("shift").integers(slots, 2 * self.pad + 1, 2) - self.pad
        return points[0] + as_point_shape(shift[:, 0] * (2 / image_size[1])), points[1] + as_point_shape(shift[:, 1] * (2 / image_size[0]))


@dataclass(frozen=True)
class Rotate(GeometricOp):
    """Rotation about the center by an angle uniform in [-degrees, degrees].

    Positive angles are counter-clockwise.
    """

    degrees: float = 15.0

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        angle = as_point_shape(torch.deg2rad(scale_to_range(-self.degrees, self.degrees, rng_key("angle").uniform(slots))))
        aspect = image_size[1] / image_size[0]
        (x, y), cos, sin = points, angle.cos(), angle.sin()
        return cos * x - sin / aspect * y, sin * aspect * x + cos * y


@dataclass(frozen=True)
class Shear(GeometricOp):
    """Shear of both axes about the center.

    Each angle is uniform in [-degrees, degrees].
    """

    degrees: float = 10.0

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        slant = torch.deg2rad(scale_to_range(-self.degrees, self.degrees, rng_key("angle").uniform(slots, 2))).tan()
        aspect = image_size[1] / image_size[0]
        (x, y), along_x, along_y = points, as_point_shape(slant[:, 0]), as_point_shape(slant[:, 1])
        return x + along_x / aspect * y, along_y * aspect * x + y


@dataclass(frozen=True)
class Perspective(GeometricOp):
    """Random perspective view.

    A random quadrilateral in the image is stretched to the whole image. Each corner of the quadrilateral lies
    inward of the image corner by shares of half a side that are uniform in [0, distortion]. Below 2/3 the
    quadrilateral is always convex.
    """

    distortion: float = 0.3

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.distortion < 2 / 3:
            raise UsageError(f"Perspective: distortion must be at least 0 and below 2/3, got {self.distortion}")

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        (x, y), (affine, g) = points, compute_projective_map(self.draw_corners(slots, rng_key))
        (a, b, c), (d, e, f) = (map(as_point_shape, row.unbind(1)) for row in affine.unbind(1))
        depth = as_point_shape(g[:, 0]) * x + as_point_shape(g[:, 1]) * y + 1
        return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth

    def draw_corners(self, slots: Slots, rng_key: RandomKey) -> Float[Tensor, "n 4 2"]:
        """Draw the corners of the quadrilateral.

        The order is top left, top right, bottom right, bottom left, each (x, y).
        """
        return get_image_corners(slots.device) * (1 - self.distortion * rng_key("corners").uniform(slots, 4, 2))


@dataclass(frozen=True)
class Elastic(GeometricOp):
    """Elastic warp by a smooth random field (Simard et al. 2003).

    The field is normal noise of standard deviation `std_pixels` at `knots` x `knots` knots that span the
    image, with bicubic interpolation between them. The image folds or tears where adjacent knots move farther
    than they are apart.
    """

    std_pixels: float = 1.0
    knots: int = 4

    def map_to_input(self, points: Points, slots: Slots, rng_key: RandomKey, image_size: ImageSize) -> Points:
        noise = self.std_pixels * rng_key("field").normal(slots, 2, self.knots, self.knots)
        grid = as_grid(points)
        field = F.grid_sample(noise, grid.expand(len(noise), *grid.shape[1:]), mode="bicubic", padding_mode="border", align_corners=True)
        return points[0] + field[:, 0] * (2 / image_size[1]), points[1] + field[:, 1] * (2 / image_size[0])


def as_point_shape(value: RowValues) -> Float[Tensor, "n 1 1"]:
    """Reshape `(n,)` to `(n, 1, 1)`, one number for all points of an image."""
    return value[:, None, None]


@functools.lru_cache
def get_image_corners(device: torch.device) -> Float[Tensor, "4 2"]:
    """Return the corners of the image in normalized coordinates.

    The result is cached, because copying the corners to a device again would block.
    """
    return torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], device=device)


def compute_projective_map(corners: Float[Tensor, "n 4 2"]) -> tuple[Float[Tensor, "n 2 3"], Float[Tensor, "n 2"]]:
    """Compute (A, g) of the projective map from [-1, 1]^2 to quadrilaterals.

    The map is p -> A (p, 1) / (g . p + 1). The numerator N(p) = A (p, 1) is affine, so its values at the
    corners c_i of the square satisfy N0 - N1 + N2 - N3 = 0, and N_i = (1 + g . c_i) P_i. This gives two
    linear equations for g, and then A from the N_i (Heckbert 1989).

    Args:
        corners: `(n, 4, 2)` corners P_i of the quadrilaterals.
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
    """Compute the cross product of vectors in the plane."""
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]

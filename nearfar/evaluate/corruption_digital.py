"""Digital corruptions of images: contrast, elastic transform, pixelate and JPEG."""

from __future__ import annotations

import functools
import io

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float64
from PIL import Image
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.corruption_blur import build_smoothing_matrix
from nearfar.evaluate.corruption_levels import HALF_UP, Corruption, UnitImages, as_unit_images, round_to_bytes
from nearfar.similarity.image_op import Slots

LARGE_ELASTIC_SCALE = 244 / 224
"""Factor of the published shares of elastic transforms on large images.

The authors' script takes shares of 244 pixels for images of 224, and says in a comment that 224 was meant.
"""


def lower_contrast(x: UnitImages, slots: Slots, rng_key: RandomKey, factor: float) -> UnitImages:
    """Move all values towards the mean of their channel."""
    mean = x.mean((2, 3), keepdim=True)
    return torch.lerp(mean, x, factor)


def transform_elastically(
    x: UnitImages, slots: Slots, rng_key: RandomKey, amplitude: float, smoothness: float, affine: float
) -> UnitImages:
    """Warp by a random affine map, then by a smooth random field.

    Args:
        x: Images.
        slots: Sample ids.
        rng_key: Random key.
        amplitude: Factor of the field, relative to the shorter side.
        smoothness: Standard deviation of the Gaussian that smooths the uniform noise of the field, relative
            to the shorter side.
        affine: Largest movement of three points along each axis, relative to the shorter side.
    """
    height, width = x.shape[2:]
    side = min(height, width)
    x = warp_affinely(x, affine * side * (2 * rng_key("elastic points").uniform(slots, 3, 2).double() - 1))
    if amplitude == 0:
        return x
    rows = build_smoothing_matrix(height, smoothness * side, 3, mirrored=True, device=x.device)
    columns = build_smoothing_matrix(width, smoothness * side, 3, mirrored=True, device=x.device)
    noise = 2 * rng_key("elastic field").uniform(slots, 2, height, width).double() - 1
    field = amplitude * side * (rows @ noise @ columns.T)
    return sample_at(x, compute_positions(x) + field, mirror_at_centers=False)


def warp_affinely(x: UnitImages, moves: Float64[Tensor, "n 3 2"]) -> UnitImages:
    """Warp each image by the affine map that moves three points.

    The points lie on a square around the center: lower right, upper right and upper left.

    Args:
        x: Images (n, c, h, w).
        moves: Movements (x, y) of the points in pixels.
    """
    height, width = x.shape[2:]
    half = min(height, width) // 3
    corners = torch.tensor([[half, half], [half, -half], [-half, -half]], dtype=x.dtype, device=x.device)
    points = corners + torch.tensor([width // 2, height // 2], dtype=x.dtype, device=x.device)
    ones = torch.ones_like(points[:, :1])
    moved = torch.cat([points + moves, ones.expand(len(x), 3, 1)], dim=2)  # (n, 3, 3)
    inverse = torch.linalg.solve(moved, points.expand(len(x), 3, 2))  # (n, 3, 2)
    positions = compute_positions(x).flatten(1)  # (2, p): y, x
    columns, rows = (inverse[:, 0, :, None] * positions[1] + inverse[:, 1, :, None] * positions[0] + inverse[:, 2, :, None]).unbind(1)
    return sample_at(x, torch.stack([rows, columns], dim=1).unflatten(2, (height, width)), mirror_at_centers=True)


def compute_positions(x: UnitImages) -> Float64[Tensor, "2 h w"]:
    """Compute the row and the column of each pixel."""
    height, width = x.shape[2:]
    rows = torch.arange(height, dtype=x.dtype, device=x.device)
    columns = torch.arange(width, dtype=x.dtype, device=x.device)
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"))


def sample_at(x: UnitImages, positions: Float64[Tensor, "n 2 h w"], *, mirror_at_centers: bool) -> UnitImages:
    """Sample images bilinearly at (row, column) positions in pixels.

    Positions outside are mirrored, at the centers of the outer pixels (c b | a b c) or at their edges
    (b a | a b c).
    """
    height, width = x.shape[2:]
    rows, columns = positions.unbind(1)
    if mirror_at_centers:
        grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], dim=3)
    else:
        grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=3)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=mirror_at_centers)


def pixelate(x: UnitImages, slots: Slots, rng_key: RandomKey, factor: float) -> UnitImages:
    """Shrink images and enlarge them again, with Pillow's box filter and its rounding to uint8."""
    height, width = x.shape[2:]
    small = int(height * factor), int(width * factor)
    levels = x * 255
    for rows, columns in (small, (height, width)):
        levels = (levels @ build_box_matrix(levels.shape[3], columns, x.device).T + HALF_UP).floor()
        levels = (build_box_matrix(levels.shape[2], rows, x.device) @ levels + HALF_UP).floor()
    return levels / 255


@functools.lru_cache(maxsize=64)
def build_box_matrix(size: int, new_size: int, device: torch.device) -> Float64[Tensor, "t s"]:
    """Build the matrix of Pillow's box filter.

    Each new pixel is the mean of the pixels whose centers lie in its window. Centers on the edge of a window
    are decided by the same two comparisons as in Pillow, with the same rounding errors.
    """
    scale = size / new_size
    window = max(scale, 1)
    centers = (torch.arange(new_size, dtype=torch.float64)[:, None] + 0.5) * scale
    index = torch.arange(size)
    first, end = (centers - window / 2 + 0.5).floor(), (centers + window / 2 + 0.5).floor()
    offsets = (index - centers + 0.5) * (1 / window)
    inside = ((index >= first) & (index < end) & (offsets > -0.5) & (offsets <= 0.5)).double()
    return (inside / inside.sum(1, keepdim=True)).to(device)


def compress_as_jpeg(x: UnitImages, slots: Slots, rng_key: RandomKey, quality: int) -> UnitImages:
    """Compress each image as JPEG and decode it again, with Pillow."""
    pixels = round_to_bytes(x).movedim(1, 3).cpu().numpy()
    decoded = [_encode_and_decode(image, quality) for image in pixels]
    return as_unit_images(torch.from_numpy(np.stack(decoded)).movedim(3, 1).to(x.device))


def _encode_and_decode(pixels: np.ndarray, quality: int) -> np.ndarray:
    height, width, channels = pixels.shape
    stream = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    image.save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream)).reshape(height, width, channels)


DIGITAL = {
    "contrast": Corruption(
        lower_contrast,
        small=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        large=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    ),
    "elastic_transform": Corruption(
        transform_elastically,
        small=((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        large=tuple(
            tuple(LARGE_ELASTIC_SCALE * share for share in level)
            for level in ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
        ),
    ),
    "pixelate": Corruption(
        pixelate,
        small=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        large=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    ),
    "jpeg_compression": Corruption(
        compress_as_jpeg,
        small=((80,), (65,), (58,), (50,), (40,)),
        large=((25,), (18,), (15,), (10,), (7,)),
    ),
}
"""Digital corruptions by name."""

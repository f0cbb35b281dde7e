"""Motions against Pillow, numpy.pad and naive loops; images are deliberately not square."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity import Compose, Crop, Elastic, Flip, GeometricOp, PadCrop, Perspective, Rotate, Shear
from nearfar.similarity.warp import compute_pixel_centers

KEY = RandomKey(3)("test")
N, HEIGHT, WIDTH = 8, 12, 20
SLOTS = torch.arange(100, 100 + N)


def images(n: int = N, channels: int = 3) -> Tensor:
    return torch.rand(n, channels, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(n))


def pulled(motion: GeometricOp, x: list[float], y: list[float], slots: Tensor = SLOTS, frame=(HEIGHT, WIDTH)) -> np.ndarray:
    """Where the motion sends some normalized points: (n, points, 2)."""
    px, py = motion.map_to_input((torch.tensor(x)[None, None], torch.tensor(y)[None, None]), slots, KEY, frame)
    return torch.stack(torch.broadcast_tensors(px, py), -1).expand(len(slots), 1, len(x), 2)[:, 0].double().numpy()


def with_pillow(x: Tensor, draw) -> Tensor:
    """`draw(row, image)` for every channel of every row, in floating point."""
    return torch.stack(
        [torch.stack([torch.from_numpy(np.array(draw(i, Image.fromarray(c.numpy())))) for c in row]) for i, row in enumerate(x)]
    )


def inside(motion: GeometricOp) -> Tensor:
    """Pixels of the result that look into the input: beyond, Pillow paints black."""
    x, y = motion.map_to_input(compute_pixel_centers((HEIGHT, WIDTH), SLOTS.device), SLOTS, KEY, (HEIGHT, WIDTH))
    return ((x.abs() < 0.999) & (y.abs() < 0.999))[:, None].expand(N, 3, HEIGHT, WIDTH)


def coefficients(points: np.ndarray) -> tuple[float, ...]:
    """Pillow's six numbers of an affine map, from where the normalized points (0,0), (1,0), (0,1) go."""
    half = np.array([WIDTH / 2, HEIGHT / 2])
    origin, along_x, along_y = points
    linear = np.stack((along_x - origin, along_y - origin), 1) * half[:, None] / half
    shift = half * (1 + origin) - linear @ half
    return (linear[0, 0], linear[0, 1], shift[0], linear[1, 0], linear[1, 1], shift[1])


def test_crop_is_pillows_resize_of_a_box():
    op, x = Crop(24, scale=(0.1, 0.9)), images()
    half = np.array([WIDTH / 2, HEIGHT / 2])
    low, high = (half * (1 + corner) for corner in pulled(op, [-1.0, 1.0], [-1.0, 1.0]).transpose(1, 0, 2))
    expected = with_pillow(x, lambda i, image: image.resize((24, 24), Image.Resampling.BILINEAR, box=(*low[i], *high[i])))
    torch.testing.assert_close(op(x, SLOTS, KEY), expected, atol=2e-5, rtol=0)


def test_crop_windows_have_the_law_of_rejection_sampling():
    n, scale, ratio = 4000, (0.2, 1.0), (3 / 4, 4 / 3)
    corners = pulled(Crop(8, scale, ratio), [-1.0, 1.0], [-1.0, 1.0], torch.arange(n))
    assert np.abs(corners).max() <= 1 + 1e-6
    (width, height), centre = (corners[:, 1] - corners[:, 0]).T / 2, corners.mean(1)

    rng, reference = np.random.default_rng(0), []
    while len(reference) < n:
        area, shape = rng.uniform(*scale) * WIDTH * HEIGHT, math.exp(rng.uniform(*np.log(ratio)))
        w, h = math.sqrt(area * shape) / WIDTH, math.sqrt(area / shape) / HEIGHT
        if w <= 1 and h <= 1:
            reference.append((w, h))
    w, h = np.array(reference).T
    for ours, loops in [(width * height, w * h), (width / height, w / h)]:
        assert stats.kstest(ours, loops).pvalue > 1e-3
    room = 1 - np.stack((width, height), 1)
    place = (centre / room.clip(1e-3))[room.min(1) > 0.01]
    assert stats.kstest(place[:, 0], "uniform", (-1, 2)).pvalue > 1e-3
    assert stats.kstest(place[:, 1], "uniform", (-1, 2)).pvalue > 1e-3


def test_crop_that_cannot_fit_is_cut_to_the_image():
    corners = pulled(Crop(8, scale=(1.0, 1.0), ratio=(1.0, 1.0)), [-1.0, 1.0], [-1.0, 1.0])
    assert np.abs(corners).max() <= 1 + 1e-6
    np.testing.assert_allclose(corners[:, 1, 1], 1, atol=1e-6)


def test_flip_mirrors_the_chosen_rows_and_no_others():
    x = images(200, 1)
    out = Flip()(x, torch.arange(200), KEY)
    mirrored = (out - x.flip(3)).abs().amax((1, 2, 3)) < 1e-5
    kept = (out - x).abs().amax((1, 2, 3)) < 1e-5
    assert bool((mirrored ^ kept).all())
    assert 70 < int(mirrored.sum()) < 130


@pytest.mark.parametrize(("outside", "mode"), [("zeros", "constant"), ("border", "edge")])
def test_pad_crop_is_a_slice_of_numpy_pad(outside, mode):
    n, pad = 400, 2
    x = images(n, 1)
    out = PadCrop(pad, padding_mode=outside)(x, torch.arange(n), KEY)
    padded = torch.from_numpy(np.pad(x.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode=mode))
    windows = [padded[..., top : top + HEIGHT, left : left + WIDTH] for top in range(2 * pad + 1) for left in range(2 * pad + 1)]
    hits = torch.stack([(out - w).abs().amax((1, 2, 3)) < 1e-4 for w in windows])
    assert bool((hits.sum(0) == 1).all())
    assert stats.chisquare(hits.sum(1).numpy()).pvalue > 1e-3


def test_rotation_is_pillows():
    op, x = Rotate(40.0), images()
    aspect = WIDTH / HEIGHT
    points = pulled(op, [1.0], [0.0])[:, 0]
    degrees = np.degrees(np.arctan2(points[:, 1] / aspect, points[:, 0]))
    assert np.abs(degrees).max() <= 40
    assert len(set(degrees.round(3))) == N
    expected = with_pillow(x, lambda i, image: image.rotate(degrees[i], Image.Resampling.BILINEAR))
    torch.testing.assert_close(op(x, SLOTS, KEY)[inside(op)], expected[inside(op)], atol=1e-4, rtol=0)


def test_shear_is_pillows_affine_transform():
    op, x = Shear(25.0), images()
    slants = pulled(op, [1.0, 0.0], [0.0, 1.0])
    along_x, along_y = slants[:, 1, 0] * WIDTH / HEIGHT, slants[:, 0, 1] * HEIGHT / WIDTH
    assert max(np.abs(along_x).max(), np.abs(along_y).max()) <= math.tan(math.radians(25))
    assert not np.allclose(along_x, along_y)
    cx, cy = WIDTH / 2, HEIGHT / 2
    maps = [(1, a, -a * cy, b, 1, -b * cx) for a, b in zip(along_x, along_y, strict=True)]
    expected = with_pillow(x, lambda i, image: image.transform(image.size, Image.Transform.AFFINE, maps[i], Image.Resampling.BILINEAR))
    torch.testing.assert_close(op(x, SLOTS, KEY)[inside(op)], expected[inside(op)], atol=1e-4, rtol=0)


def test_perspective_is_pillows_with_coefficients_from_linear_equations():
    op, x = Perspective(0.6), images()
    half = np.array([WIDTH / 2, HEIGHT / 2])
    quads = half * (1 + op.draw_corners(SLOTS, KEY).double().numpy())
    frame = half * (1 + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]))

    def solve(quad: np.ndarray) -> list[float]:
        rows, right = [], []
        for (x_out, y_out), (x_in, y_in) in zip(frame, quad, strict=True):
            rows += [[x_out, y_out, 1, 0, 0, 0, -x_in * x_out, -x_in * y_out], [0, 0, 0, x_out, y_out, 1, -y_in * x_out, -y_in * y_out]]
            right += [x_in, y_in]
        return np.linalg.solve(np.array(rows), np.array(right)).tolist()

    expected = with_pillow(
        x, lambda i, image: image.transform(image.size, Image.Transform.PERSPECTIVE, solve(quads[i]), Image.Resampling.BILINEAR)
    )
    torch.testing.assert_close(op(x, SLOTS, KEY), expected, atol=1e-4, rtol=0)


def test_perspective_moves_each_corner_inward_by_uniform_shares():
    corners = Perspective(0.6).draw_corners(torch.arange(3000), KEY).numpy()
    assert (np.sign(corners) == np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])).all()
    for inward in (1 - np.abs(corners)).reshape(-1, 8).T:
        assert stats.kstest(inward, "uniform", (0, 0.6)).pvalue > 1e-3


def cubic(t: float, a: float = -0.75) -> float:
    """Keys' kernel of cubic convolution."""
    t = abs(t)
    return ((a + 2) * t - (a + 3)) * t * t + 1 if t <= 1 else ((t - 5) * t + 8) * t * a - 4 * a if t < 2 else 0.0


def test_elastic_field_is_cubic_convolution_between_the_knots():
    op = Elastic(std_pixels=1.5, knots=4)
    (x, y), noise = compute_pixel_centers((HEIGHT, WIDTH), SLOTS.device), 1.5 * KEY("field").normal(SLOTS, 2, 4, 4).double().numpy()
    to_x, to_y = op.map_to_input((x, y), SLOTS, KEY, (HEIGHT, WIDTH))
    shift = torch.stack(((to_x - x) * WIDTH / 2, (to_y - y) * HEIGHT / 2), 1)[0].numpy()
    for i in range(HEIGHT):
        for j in range(WIDTH):
            row, column = 3 * (i + 0.5) / HEIGHT, 3 * (j + 0.5) / WIDTH
            expected = sum(
                cubic(row - a) * cubic(column - b) * noise[0, :, min(max(a, 0), 3), min(max(b, 0), 3)]
                for a in range(-2, 6)
                for b in range(-2, 6)
            )
            np.testing.assert_allclose(shift[:, i, j], expected, atol=1e-4)


def test_elastic_samples_where_its_field_points():
    op, x = Elastic(std_pixels=1.0), images(channels=1)
    to_x, to_y = op.map_to_input(compute_pixel_centers((HEIGHT, WIDTH), SLOTS.device), SLOTS, KEY, (HEIGHT, WIDTH))
    out = op(x, SLOTS, KEY)
    for n, i, j in [(0, 0, 0), (1, 5, 7), (2, 11, 19), (3, 6, 0), (7, 3, 18)]:
        column = min(max((float(to_x[n, i, j]) + 1) * WIDTH / 2 - 0.5, 0), WIDTH - 1)
        row = min(max((float(to_y[n, i, j]) + 1) * HEIGHT / 2 - 0.5, 0), HEIGHT - 1)
        value = sum(
            max(0.0, 1 - abs(row - a)) * max(0.0, 1 - abs(column - b)) * float(x[n, 0, a, b]) for a in range(HEIGHT) for b in range(WIDTH)
        )
        assert float(out[n, 0, i, j]) == pytest.approx(value, abs=1e-4)


def test_merged_motions_are_one_affine_map():
    pipeline, x = Compose(Flip(), Rotate(20.0), Shear(10.0)), images()
    origin, units = [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    maps = np.tile(np.eye(3), (N, 1, 1))
    for position, op in enumerate(pipeline.ops):
        assert isinstance(op, GeometricOp)
        px, py = op.map_to_input((torch.tensor(origin)[None, None], torch.tensor(units)[None, None]), SLOTS, KEY(position), (HEIGHT, WIDTH))
        moved = torch.stack(torch.broadcast_tensors(px, py), -1).expand(N, 1, 3, 2)[:, 0].double().numpy()
        if isinstance(op, Flip):
            chosen = (KEY(position)("chosen").uniform(SLOTS) < 0.5).numpy()
            moved = np.where(chosen[:, None, None], moved, np.array([[0, 0], [1, 0], [0, 1]]))
        step = np.tile(np.eye(3), (N, 1, 1))
        step[:, :2, 0], step[:, :2, 1], step[:, :2, 2] = moved[:, 1] - moved[:, 0], moved[:, 2] - moved[:, 0], moved[:, 0]
        maps = maps @ step
    corners = np.stack((maps[:, :2, 2], maps[:, :2, 2] + maps[:, :2, 0], maps[:, :2, 2] + maps[:, :2, 1]), 1)
    draw = lambda i, image: image.transform(image.size, Image.Transform.AFFINE, coefficients(corners[i]), Image.Resampling.BILINEAR)
    expected, out = with_pillow(x, draw), pipeline(x, SLOTS, KEY)
    painted = expected != 0  # Pillow's black outside; the images themselves have no zeros
    assert painted.float().mean() > 0.6
    torch.testing.assert_close(out[painted], expected[painted], atol=1e-4, rtol=0)


def test_merging_changes_no_random_number():
    """Bilinear interpolation is exact on a plane, so there, away from the edges, one sampling equals three."""
    ramp = (torch.arange(32.0)[:, None] + 2 * torch.arange(32.0)).div(100).expand(N, 1, 32, 32)
    pipeline = Compose(Crop(24, scale=(0.3, 0.8)), Rotate(10.0), Perspective(0.0), Shear(5.0), Flip())
    apart = ramp
    for position, op in enumerate(pipeline.ops):
        apart = op(apart, SLOTS, KEY(position))
    centre = slice(9, 15)
    torch.testing.assert_close(pipeline(ramp, SLOTS, KEY)[..., centre, centre], apart[..., centre, centre], atol=1e-5, rtol=0)


def test_motions_that_disagree_on_the_outside_are_not_merged():
    x, pad, turn = images(), PadCrop(3), Rotate(30.0)
    together = Compose(pad, turn)(x, SLOTS, KEY)
    torch.testing.assert_close(together, turn(pad(x, SLOTS, KEY(0)), SLOTS, KEY(1)), atol=0, rtol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Crop(0),
        lambda: Crop(8, scale=(0.5, 1.5)),
        lambda: Crop(8, scale=(0.9, 0.5)),
        lambda: Crop(8, ratio=(0.0, 1.0)),
        lambda: Perspective(0.7),
        lambda: Flip(prob=1.2),
    ],
)
def test_impossible_settings_are_usage_errors(wrong):
    with pytest.raises(UsageError):
        wrong()

"""Filters against Pillow, colorsys, scipy.ndimage and naive loops."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from scipy import ndimage, stats
from torch import Tensor

from nearfar.core import RandomKey, UsageError
from nearfar.similarity import ColorJitter, Cutout, GaussianBlur, GaussianNoise, Grayscale, SobelEdges, Solarize
from nearfar.similarity.color import adjust_brightness, adjust_contrast, adjust_saturation, shift_hue

KEY = RandomKey(5)("test")
N = 6
SLOTS = torch.arange(N)


def bytes_and_images(n: int = N, height: int = 12, width: int = 20) -> tuple[np.ndarray, Tensor]:
    """uint8 (n, h, w, 3) for Pillow, and the same as floats (n, 3, h, w)."""
    raw = np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)
    return raw, torch.from_numpy(raw).permute(0, 3, 1, 2).float().div(255)


def from_pillow(images: list[Image.Image]) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float().div(255)


@pytest.mark.parametrize(
    ("ours", "pillows"),
    [(adjust_brightness, ImageEnhance.Brightness), (adjust_contrast, ImageEnhance.Contrast), (adjust_saturation, ImageEnhance.Color)],
)
def test_enhancements_are_pillows_up_to_its_rounding(ours, pillows):
    raw, x = bytes_and_images()
    factors = torch.tensor([0.0, 0.3, 0.9, 1.0, 1.4, 1.8])
    expected = from_pillow([pillows(Image.fromarray(r)).enhance(float(f)) for r, f in zip(raw, factors, strict=True)])
    torch.testing.assert_close(ours(x, factors), expected, atol=2.01 / 255, rtol=0)
    assert (ours(x, factors) - expected).abs().mean() < 0.8 / 255


def test_hue_is_colorsys():
    _, x = bytes_and_images()
    x[0, :, 0] = 0.3  # gray has no hue
    x[1, :, 0] = torch.tensor([1.0, 0.0, 0.0])[:, None]
    x[1, :, 1] = torch.tensor([0.2, 0.7, 0.7])[:, None]  # two channels share the maximum
    turns = torch.tensor([-0.5, -0.2, 0.0, 0.1, 1 / 3, 0.5])
    out = shift_hue(x, turns)
    for n, shift in enumerate(turns.tolist()):
        for i in range(x.shape[2]):
            for j in range(x.shape[3]):
                h, s, v = colorsys.rgb_to_hsv(*x[n, :, i, j].tolist())
                np.testing.assert_allclose(out[n, :, i, j], colorsys.hsv_to_rgb((h + shift) % 1, s, v), atol=2e-6)


def test_jitter_is_brightness_contrast_saturation_hue_in_this_order():
    _, x = bytes_and_images()
    steps = (ColorJitter(brightness=0.8), ColorJitter(contrast=0.8), ColorJitter(saturation=0.8), ColorJitter(hue=0.2))
    one_by_one = x
    for step in steps:
        one_by_one = step(one_by_one, SLOTS, KEY)
    assert torch.equal(ColorJitter(0.8, 0.8, 0.8, 0.2)(x, SLOTS, KEY), one_by_one)


def test_jitter_draws_uniform_strengths():
    slots = torch.arange(4000)
    flat = torch.full((4000, 3, 1, 1), 0.5)
    factors = 2 * ColorJitter(brightness=0.4)(flat, slots, KEY)[:, 0, 0, 0].numpy()
    assert stats.kstest(factors, "uniform", (0.6, 0.8)).pvalue > 1e-3
    always = ColorJitter(brightness=1.7)(flat, slots, KEY)[:, 0, 0, 0]
    assert 0 <= always.min() < 0.01, "factors below zero are cut off"
    red = torch.tensor([1.0, 0.0, 0.0])[None, :, None, None].expand(4000, 3, 1, 1)
    hues = np.array([colorsys.rgb_to_hsv(*colour)[0] for colour in ColorJitter(hue=0.3)(red, slots, KEY)[..., 0, 0].tolist()])
    assert stats.kstest((hues + 0.5) % 1 - 0.5, "uniform", (-0.3, 0.6)).pvalue > 1e-3


def test_jitter_strengths_are_independent_of_each_other():
    u = KEY("strength").uniform(torch.arange(4000), 4).numpy()
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.06


def test_grey_is_pillows_luma():
    raw, x = bytes_and_images()
    expected = from_pillow([Image.fromarray(r).convert("L").convert("RGB") for r in raw])
    torch.testing.assert_close(Grayscale()(x, SLOTS, KEY), expected, atol=1.01 / 255, rtol=0)


def test_images_without_colour_have_neither_hue_nor_saturation():
    x = torch.rand(N, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Grayscale()(x, SLOTS, KEY), x)
    assert torch.equal(ColorJitter(saturation=0.9, hue=0.5)(x, SLOTS, KEY), x)
    coloured = x.expand(N, 3, 9, 9)
    torch.testing.assert_close(ColorJitter(0.5, 0.5)(x, SLOTS, KEY).expand_as(coloured), ColorJitter(0.5, 0.5)(coloured, SLOTS, KEY))


def test_solarise_is_pillows():
    raw, x = bytes_and_images()
    expected = from_pillow([ImageOps.solarize(Image.fromarray(r), 128) for r in raw])
    torch.testing.assert_close(Solarize(0.5)(x, SLOTS, KEY), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("sigma", "width", "radius"), [(0.4, 0.1, 1), (1.0, 0.35, 2), (2.0, 0.9, 5)])
def test_blur_is_scipys_gaussian_filter(sigma, width, radius):
    _, x = bytes_and_images()
    expected = ndimage.gaussian_filter(x.double().numpy(), sigma, radius=radius, mode="mirror", axes=(2, 3))
    out = GaussianBlur((sigma, sigma), width)(x, SLOTS, KEY)
    torch.testing.assert_close(out, torch.from_numpy(expected).float(), atol=1e-5, rtol=0)


def test_blur_with_a_wide_kernel_is_near_pillows():
    """Pillow approximates the Gaussian by box filters and rounds to bytes: near, not equal."""
    raw, x = bytes_and_images(height=40, width=40)
    expected = from_pillow([Image.fromarray(r).filter(ImageFilter.GaussianBlur(1.5)) for r in raw])
    inner = slice(8, -8)
    out = GaussianBlur((1.5, 1.5), 0.4)(x, SLOTS, KEY)
    assert (out - expected)[..., inner, inner].abs().mean() < 0.005 < (x - expected)[..., inner, inner].abs().mean() / 20


def test_blur_draws_its_own_sigma_for_each_slot():
    point = torch.zeros(500, 1, 5, 5)
    point[:, :, 2, 2] = 1
    out = GaussianBlur((0.3, 2.0))(point, torch.arange(500), KEY)
    # beside over center of a 3-tap kernel is exp(-1 / 2 sigma^2)
    sigma = (-0.5 / torch.log(out[:, 0, 2, 1] / out[:, 0, 2, 2])).sqrt().numpy()
    assert stats.kstest(sigma, "uniform", (0.3, 1.7)).pvalue > 1e-3


def test_sobel_is_scipys():
    _, x = bytes_and_images()
    planes = x.double().flatten(0, 1).numpy()
    expected = np.stack([np.hypot(ndimage.sobel(p, 0, mode="nearest"), ndimage.sobel(p, 1, mode="nearest")) / 4 for p in planes])
    expected = torch.from_numpy(expected.clip(0, 1)).float().view_as(x)
    torch.testing.assert_close(SobelEdges()(x, SLOTS, KEY), expected, atol=1e-5, rtol=0)
    step = torch.zeros(1, 1, 6, 6)
    step[..., 3:] = 1
    assert SobelEdges()(step, SLOTS[:1], KEY)[0, 0, 2].tolist() == [0, 0, 1, 1, 0, 0]


def test_noise_is_normal_and_differs_everywhere():
    flat = torch.full((40, 3, 10, 10), 0.5)
    noise = (GaussianNoise(0.05)(flat, torch.arange(40), KEY) - 0.5) / 0.05
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3
    rows = np.corrcoef(noise.flatten(1).numpy())
    assert np.abs(rows - np.eye(40)).max() < 0.25


def test_cutout_paints_one_square_around_a_uniform_centre():
    n, height, width, side = 4000, 8, 10, 4
    out = Cutout(0.5, fill=0.25)(torch.ones(n, 3, height, width), torch.arange(n), KEY)
    painted = (out == 0.25).all(1)
    assert bool(((out == 1).all(1) | painted).all())
    rows, columns = painted.any(2), painted.any(1)
    assert torch.equal(painted, rows[:, :, None] & columns[:, None, :])
    naive = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            naive[max(0, i - side // 2) : i - side // 2 + side, max(0, j - side // 2) : j - side // 2 + side] += 1
    np.testing.assert_allclose(painted.float().mean(0).numpy(), naive / (height * width), atol=0.035)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ColorJitter(brightness=-0.1),
        lambda: ColorJitter(hue=0.6),
        lambda: Grayscale(prob=-0.5),
        lambda: GaussianBlur((2.0, 1.0)),
        lambda: GaussianBlur((0.0, 1.0)),
        lambda: GaussianBlur(kernel_share=1.0),
    ],
)
def test_impossible_settings_are_usage_errors(wrong):
    with pytest.raises(UsageError):
        wrong()

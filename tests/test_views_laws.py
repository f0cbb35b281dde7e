"""What holds for every operation: pure in (row, slot, key), within [0, 1], applied at the rate that was asked for."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.similarity import (
    ColorJitter,
    Compose,
    Crop,
    Cutout,
    Elastic,
    Filter,
    Flip,
    GaussianBlur,
    GaussianNoise,
    GeometricOp,
    Grayscale,
    ImageOp,
    PadCrop,
    Perspective,
    Rotate,
    Shear,
    SobelEdges,
    Solarize,
    byol_views,
    handwriting_views,
    moco_v1_views,
    moco_v2_views,
    simclr_views,
    swav_views,
)

KEY = RandomKey(7)("test")
OPS: list[ImageOp] = [
    Crop(10), Flip(), PadCrop(3), Rotate(30.0), Shear(20.0), Perspective(0.5), Elastic(1.0), ColorJitter(0.8, 0.8, 0.8, 0.2),
    Grayscale(prob=0.5),
    Solarize(prob=0.5), GaussianBlur(), SobelEdges(prob=0.5), GaussianNoise(0.1), Cutout(),
]  # fmt: skip
PIPELINES = [
    simclr_views(16).pipelines[0], moco_v1_views(16).pipelines[0], moco_v2_views(16).pipelines[0], *byol_views(48).pipelines,
    swav_views(48).pipelines[-1], handwriting_views(16).pipelines[0],
    Compose(PadCrop(2), Flip(), Cutout(), Rotate(9.0), Elastic(), Crop(8)),
]  # fmt: skip
IDENTITIES: list[ImageOp] = [
    Crop(16, scale=(1.0, 1.0), ratio=(1.0, 1.0)), Flip(prob=0.0), PadCrop(0), Rotate(0.0), Shear(0.0), Perspective(0.0),
    Elastic(0.0),
    ColorJitter(), ColorJitter(1e-8, 1e-8, 1e-8, 1e-8), Grayscale(prob=0.0), Solarize(1.01), GaussianBlur((1e-3, 1e-3)),
    GaussianNoise(0.0), Cutout(0.0), Compose(),
]  # fmt: skip

name = lambda op: type(op).__name__


def images(n: int, channels: int = 3, height: int = 16, width: int = 16) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("op", OPS + PIPELINES, ids=name)
@pytest.mark.parametrize("channels", [1, 3])
def test_rows_depend_on_their_own_image_slot_and_the_key_alone(op, channels):
    x, slots = images(24, channels, 14, 18), torch.arange(1000, 1024)
    before = x.clone()
    whole = op(x, slots, KEY)
    assert torch.equal(x, before), "the input is left as it was"
    assert torch.equal(whole, op(x, slots, KEY))
    chunks = [op(x[a:b], slots[a:b], KEY) for a, b in [(0, 1), (1, 8), (8, 8), (8, 24)]]
    torch.testing.assert_close(torch.cat(chunks), whole, atol=1e-6, rtol=0)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(op(x[order], slots[order], KEY), whole[order], atol=1e-6, rtol=0)


@pytest.mark.parametrize("op", OPS + PIPELINES, ids=name)
def test_values_stay_between_0_and_1(op):
    checkers = (torch.arange(16)[:, None] + torch.arange(16)).remainder(2).float().expand(8, 3, 16, 16)
    for x in (images(8), checkers, torch.zeros(8, 3, 16, 16), torch.ones(8, 3, 16, 16)):
        out = op(x, torch.arange(8), KEY)
        assert out.dtype == torch.float32
        assert -1e-6 <= float(out.min()) <= float(out.max()) <= 1 + 1e-6


@pytest.mark.parametrize("op", [op for op in OPS if not isinstance(op, Grayscale | Solarize | SobelEdges)] + PIPELINES, ids=name)
def test_other_slots_and_other_keys_draw_other_numbers(op):
    x = images(1).expand(32, 3, 16, 16)
    here, elsewhere = op(x, torch.arange(32), KEY), op(x, torch.arange(32), KEY("other"))
    assert not torch.allclose(here, elsewhere, atol=1e-3)
    different = (here[1:] - here[:-1]).abs().amax((1, 2, 3)) > 1e-3
    assert int(different.sum()) >= 8
    assert torch.equal(op(x, torch.zeros(32, dtype=torch.long), KEY)[3], op(x, torch.zeros(32, dtype=torch.long), KEY)[17])


@pytest.mark.parametrize("op", IDENTITIES, ids=name)
def test_neutral_settings_change_nothing(op):
    x = images(6)
    torch.testing.assert_close(op(x, torch.arange(6), KEY), x, atol=2e-6, rtol=0)


CHANGES_EVERY_ROW: list[Filter | GeometricOp] = [
    Flip(prob=0.3), Rotate(30.0, prob=0.3), Shear(20.0, prob=0.3), Perspective(0.5, prob=0.3),
    Elastic(1.0, prob=0.3), Grayscale(prob=0.3), Solarize(prob=0.3),
    ColorJitter(hue=0.4, prob=0.3), GaussianBlur((0.5, 2.0), prob=0.3), SobelEdges(prob=0.3), GaussianNoise(prob=0.3), Cutout(prob=0.3),
]  # fmt: skip


@pytest.mark.parametrize("op", CHANGES_EVERY_ROW, ids=name)
def test_probability_is_the_rate_and_chosen_rows_are_those_of_the_certain_operation(op):
    n = 1500
    x, slots = images(n, 3, 8, 8), torch.arange(n)
    out, always = op(x, slots, KEY), dataclasses.replace(op, prob=1.0)(x, slots, KEY)
    changed = (out - x).abs().amax((1, 2, 3)) > 1e-4
    assert abs(float(changed.float().mean()) - 0.3) < 4.5 * (0.3 * 0.7 / n) ** 0.5
    torch.testing.assert_close(out[changed], always[changed], atol=1e-6, rtol=0)


def test_equal_operations_at_two_positions_draw_apart():
    x, slots = images(200, 1), torch.arange(200)
    twice = Compose(Flip(), Flip())(x, slots, KEY)
    kept = (twice - x).abs().amax((1, 2, 3)) < 1e-4
    assert 60 < int(kept.sum()) < 140, "one shared key would undo every flip"


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 24), st.integers(4, 24), st.sampled_from([1, 3]), st.integers(0, 2**40))
def test_any_size_any_slot(height, width, channels, slot):
    pipeline = Compose(Crop(7), Flip(), Elastic(), ColorJitter(0.4, 0.4, 0.4, 0.1), Grayscale(prob=0.2), GaussianBlur(), Cutout())
    out = pipeline(images(3, channels, height, width), torch.tensor([slot, slot + 1, slot]), KEY)
    assert out.shape == (3, channels, 7, 7)
    assert bool(out.isfinite().all())


if torch.cuda.is_available():

    @pytest.mark.parametrize("op", OPS + PIPELINES, ids=name)
    def test_cuda_gives_the_same_views(op):
        x, slots = images(24), torch.arange(24)
        torch.testing.assert_close(op(x.cuda(), slots.cuda(), KEY).cpu(), op(x, slots, KEY), atol=2e-5, rtol=0)

"""Views of sounds: row by row, keyed, and each what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nearfar.core import RandomKey, Rows, UsageError
from nearfar.data.samples.tones import make_tones
from nearfar.encoders.mel import LogMel, find_audible_frames
from nearfar.similarity.audio import (
    SoundViews,
    SpectralNoise,
    SpectralTilt,
    SpectrogramCrop,
    SpectrogramMask,
    TimeCrop,
    TimeShift,
    TimeWarp,
    WhiteNoise,
    aligned_sound_views,
    interpolate_frames,
    sound_views,
)

SPECTRAL = [
    SpectrogramCrop(),
    SpectrogramCrop((0.3, 0.5), (1.0, 1.0)),
    TimeWarp(),
    SpectrogramMask("time"),
    SpectrogramMask("bands", 0.3, 2),
    SpectralTilt(),
    SpectralNoise(),
    TimeCrop(0.6),
]
WAVES = [TimeShift(), WhiteNoise(), TimeCrop(0.6)]


def spectrograms(n=6):
    mel = torch.rand(n, 10, 30, generator=torch.Generator().manual_seed(0)) * 5 + 0.1
    mel[:, :, 22:] = 0
    return mel


def clips(n=6):
    wave = torch.randn(n, 400, generator=torch.Generator().manual_seed(0)) * 0.1
    wave[:, 300:] = 0
    return wave


@pytest.mark.parametrize("op", SPECTRAL + WAVES, ids=lambda op: type(op).__name__)
def test_a_row_depends_on_its_own_slot_only(op):
    x = clips() if op in WAVES else spectrograms()
    slots = torch.tensor([3, 9, 4, 11, 2, 7])
    whole = op(x, slots, RandomKey(1))
    again = torch.cat([op(x[i : i + 2], slots[i : i + 2], RandomKey(1)) for i in (0, 2, 4)])
    torch.testing.assert_close(whole, again, rtol=1e-6, atol=1e-6)
    assert not torch.equal(whole, op(x, slots, RandomKey(2)))
    assert whole.isfinite().all()


@pytest.mark.parametrize(
    "op", [SpectrogramMask("time", 0.5), SpectrogramMask("bands", 0.5), SpectralTilt(), SpectralNoise()], ids=lambda op: type(op).__name__
)
def test_silence_stays_silence(op):
    x = spectrograms()
    found = op(x, torch.arange(6), RandomKey(0))
    assert torch.equal(find_audible_frames(found), find_audible_frames(x))
    assert (found[:, :, 22:] == 0).all()


def test_interpolation_is_numpys():
    x, at = spectrograms(3), torch.rand(3, 17, generator=torch.Generator().manual_seed(1)) * 29
    found = interpolate_frames(x, at)
    for i in range(3):
        for b in range(10):
            expected = np.interp(at[i].numpy(), np.arange(30), x[i, b].numpy())
            np.testing.assert_allclose(found[i, b].numpy(), expected, rtol=1e-4, atol=1e-4)
    assert (interpolate_frames(x, torch.full((3, 1), -2.0)) == 0).all()
    assert (interpolate_frames(x, torch.full((3, 1), 31.0)) == 0).all()


def test_a_window_of_everything_changes_nothing():
    x = spectrograms()
    torch.testing.assert_close(SpectrogramCrop((1.0, 1.0), (1.0, 1.0))(x, torch.arange(6), RandomKey(0)), x, rtol=1e-4, atol=1e-4)
    assert SpectrogramCrop((0.2, 0.5), (1.0, 1.0))(x, torch.arange(6), RandomKey(0)).shape == (6, 10, 15)
    with pytest.raises(UsageError, match="low, high"):
        SpectrogramCrop((0.0, 1.0))


def test_a_smaller_window_holds_a_slower_part_of_the_clip():
    ramp = torch.arange(1.0, 31).expand(200, 4, 30).clone()
    found = SpectrogramCrop((0.5, 0.5), (1.0, 1.0))(ramp, torch.arange(200), RandomKey(0))
    torch.testing.assert_close(found.diff(dim=2), torch.full((200, 4, 14), 0.5 * 29 / 14), rtol=1e-3, atol=1e-3)
    assert found[:, 0, 0].min() < 2
    assert found[:, 0, -1].max() > 29


def test_a_warp_keeps_both_ends_and_the_order():
    ramp = torch.arange(1.0, 31).expand(50, 4, 30).clone()
    found = TimeWarp(0.3)(ramp, torch.arange(50), RandomKey(0))
    torch.testing.assert_close(found[:, :, 0], ramp[:, :, 0])
    torch.testing.assert_close(found[:, :, -1], ramp[:, :, -1])
    assert (found.diff(dim=2) > 0).all()
    assert (found - ramp).abs().max() > 2


@pytest.mark.parametrize("axis", ["time", "bands"])
def test_a_mask_hides_one_stretch_of_at_most_its_share(axis):
    x = torch.rand(300, 20, 40, generator=torch.Generator().manual_seed(0)) + 1
    changed = SpectrogramMask(axis, 0.25)(x, torch.arange(300), RandomKey(0)) != x
    lines = changed.any(1) if axis == "time" else changed.any(2)
    size = lines.shape[1]
    assert lines.sum(1).max() <= size // 4 + 1
    assert lines.sum(1).float().mean() == pytest.approx(size / 8, rel=0.15)
    assert (lines.int().diff(dim=1).abs().sum(1) <= 2).all()
    assert lines.any(0).all()


def test_colour_is_a_gain_in_decibels_that_is_a_line_over_the_bands():
    x = spectrograms()[:, :, :20]
    found = SpectralTilt(6.0, 3.0)(x, torch.arange(6), RandomKey(0))
    decibels = 10 * torch.log10(torch.expm1(found) / torch.expm1(x))
    torch.testing.assert_close(decibels, decibels[:, :, :1].expand_as(decibels), rtol=1e-2, atol=1e-2)
    assert decibels[:, :, 0].diff(n=2, dim=1).abs().max() < 0.02
    assert decibels.abs().max() <= 9.01


def test_noise_is_as_loud_as_it_says():
    x = torch.randn(40, 4000, generator=torch.Generator().manual_seed(0)) * 0.1
    added = WhiteNoise(20.0, 20.0)(x, torch.arange(40), RandomKey(0)) - x
    ratio = 10 * torch.log10(x.square().mean(1) / added.square().mean(1))
    torch.testing.assert_close(ratio, torch.full((40,), 20.0), rtol=0.05, atol=0)
    assert (WhiteNoise()(clips(), torch.arange(6), RandomKey(0))[:, 300:] == 0).all()


def test_a_shift_moves_and_fills_with_silence():
    x = torch.arange(1.0, 101).expand(60, 100).clone()
    found = TimeShift(0.2)(x, torch.arange(60), RandomKey(0))
    for row in found:
        kept = row[row > 0]
        assert len(kept) >= 80
        assert (kept.diff() == 1).all()
    assert len({int((row > 0).sum()) for row in found}) > 5


def test_two_views_differ_and_are_the_same_again():
    data, front = make_tones(), LogMel(8000)
    rows = Rows(np.arange(8), np.arange(100, 108), np.arange(8))
    views = sound_views(front)
    raw = views.read(data, rows, RandomKey(0))
    first, again = views.view(raw, rows, RandomKey(0)), views.view(raw, rows, RandomKey(0))
    assert set(first) == {"v0", "v1"}
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["v0"], first["v1"])
    part = views.view(raw[2:5], rows[2:5], RandomKey(0))
    torch.testing.assert_close(part["v1"], first["v1"][2:5], rtol=1e-4, atol=1e-4)
    assert SoundViews(waveform_ops=(TimeShift(),), num_views=1).view(raw, rows, RandomKey(0))["v0"].shape == raw.shape


def test_a_window_is_a_stretch_of_the_clip_from_anywhere():
    x = torch.arange(100.0).expand(80, 100)
    found = TimeCrop(0.25)(x, torch.arange(80), RandomKey(0))
    assert found.shape == (80, 25)
    assert (found.diff(dim=1) == 1).all()
    assert {int(found[:, 0].min()), int(found[:, 0].max())} <= set(range(76))
    assert found[:, 0].unique().numel() > 30
    both = TimeCrop(0.25)(x[:, None].expand(-1, 3, -1), torch.arange(80), RandomKey(0))
    assert torch.equal(both, found[:, None].expand(-1, 3, -1))


@pytest.mark.parametrize("front", [LogMel(8000), None], ids=["spectrograms", "samples"])
def test_timed_views_are_of_the_same_stretch(front):
    data, rows = make_tones(), Rows(np.arange(8), np.arange(8), np.arange(8))
    views = aligned_sound_views(front, window_share=0.5)
    raw = views.read(data, rows, RandomKey(0))
    found = views.view(raw, rows, RandomKey(0))
    whole = (raw.float() / 32767) if front is None else front(raw)
    assert found["v0"].shape == found["v1"].shape == TimeCrop(0.5)(whole, torch.arange(8), RandomKey(0)).shape
    assert not torch.equal(found["v0"], found["v1"])
    loudness = [v.abs() if front is None else v.sum(1) for v in (found["v0"], found["v1"])]
    for a, b in zip(*loudness, strict=True):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1] > 0.7


def test_a_clip_of_one_frame_cannot_be_warped():
    x = torch.randn(3, 5, 1)
    assert torch.equal(TimeWarp()(x, torch.arange(3), RandomKey(0)), x)

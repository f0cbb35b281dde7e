"""Log-mel spectrograms against loops over samples and frequencies, and what they promise."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch
from scipy.signal import get_window

from nearfar.encoders.mel import POWER_FLOOR, LogMel, build_mel_filters, compute_mel_statistics, find_audible_frames, normalize_loudness


def naive_filters(rate: int, points: int, bands: int) -> np.ndarray:
    mel = lambda f: 2595 * math.log10(1 + f / 700)
    edges = [700 * (10 ** (i * mel(rate / 2) / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    found = np.zeros((points // 2 + 1, bands))
    for b in range(bands):
        low, middle, high = edges[b : b + 3]
        for k in range(points // 2 + 1):
            f = k * rate / points
            if low < f <= middle:
                found[k, b] = (f - low) / (middle - low)
            elif middle < f < high:
                found[k, b] = (high - f) / (high - middle)
        if not found[:, b].any():
            found[min(range(points // 2 + 1), key=lambda k: abs(k * rate / points - middle)), b] = 1
        found[:, b] /= found[:, b].sum()
    return found


def naive_log_mel(wave: np.ndarray, rate: int, bands: int) -> np.ndarray:
    """The definition, sample by sample, in double precision."""
    length, hop = round(0.025 * rate), round(0.010 * rate)
    points = 1
    while points < length:
        points *= 2
    wave = wave / math.sqrt(sum(float(v) ** 2 for v in wave) / sum(v != 0 for v in wave))
    window = get_window("hann", length, fftbins=False)
    window = window / math.sqrt((window**2).sum())
    filters = naive_filters(rate, points, bands)
    frames = []
    for start in range(0, len(wave) - length + 1, hop):
        part = wave[start : start + length] * window
        power = [abs(sum(v * cmath.exp(-2j * cmath.pi * k * i / points) for i, v in enumerate(part))) ** 2 for k in range(points // 2 + 1)]
        frames.append([math.log(1 + sum(filters[:, b] * power) / POWER_FLOOR) for b in range(bands)])
    return np.array(frames).T


def test_it_is_the_definition():
    rate, bands = 2000, 12
    wave = np.random.default_rng(0).normal(size=140) * 0.1
    wave[100:] = 0
    found = LogMel(rate, bands)(torch.from_numpy(wave)[None].float())[0]
    np.testing.assert_allclose(found.numpy(), naive_log_mel(wave, rate, bands), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("rate", "points", "bands"), [(8000, 256, 40), (16000, 512, 40), (8000, 64, 40)])
def test_filters_are_triangles_of_area_one(rate, points, bands):
    """With 64 points some triangles hold no frequency at all: they take the nearest."""
    np.testing.assert_allclose(build_mel_filters(rate, points, bands).numpy(), naive_filters(rate, points, bands), atol=1e-6)


def test_a_tone_is_loudest_in_the_band_around_it():
    rate = 8000
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 42) / 2595) - 1)
    mel = LogMel(rate)
    for hertz in (300.0, 1000.0, 3100.0):
        tone = torch.sin(2 * torch.pi * hertz * torch.arange(4000) / rate)[None]
        band = int(mel(tone)[0].mean(1).argmax())
        assert edges[band] <= hertz <= edges[band + 2]


def test_loudness_and_number_format_do_not_matter():
    wave = torch.sin(torch.arange(4000) / 5)[None] * 0.5
    mel = LogMel(8000)
    torch.testing.assert_close(mel(wave), mel(wave * 0.01), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mel(wave), mel((wave * 32767).round().short()), rtol=1e-2, atol=2e-2)


def test_white_noise_of_loudness_one_has_power_one():
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 16000))).float()
    power = torch.expm1(LogMel(8000)(noise)) * POWER_FLOOR
    torch.testing.assert_close(power.mean((0, 2)), torch.ones(40), rtol=0.1, atol=0)


def test_silence_is_zero_and_a_short_clip_has_a_frame():
    mel = LogMel(8000)
    assert (mel(torch.zeros(2, 800)) == 0).all()
    assert mel(torch.ones(1, 30)).shape == (1, 40, 1)
    assert torch.equal(normalize_loudness(torch.zeros(1, 5)), torch.zeros(1, 5))
    half = torch.cat([torch.sin(torch.arange(1600.0)), torch.zeros(1600)])[None]
    heard = find_audible_frames(mel(half))[0]
    assert heard[:18].all()
    assert not heard[20:].any()


def test_statistics_do_not_see_the_silence_a_clip_is_filled_up_with():
    wave = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 1640))).float()
    mel = LogMel(8000)
    short = mel(wave)
    padded = torch.cat([short, torch.zeros(2, 40, 9)], 2)
    torch.testing.assert_close(compute_mel_statistics(padded), compute_mel_statistics(short))
    expected = torch.cat([short.mean(2), short.std(2, correction=0)], 1)
    torch.testing.assert_close(compute_mel_statistics(short), expected, rtol=1e-5, atol=1e-5)


def test_it_has_a_gradient():
    x = torch.randn(1, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float().requires_grad_()
    LogMel(8000)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0

"""Noise corruptions of images: Gaussian noise, shot noise and impulse noise."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float64
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.corruption_levels import Corruption, UnitImages
from nearfar.similarity.image_op import Slots


def add_gaussian_noise(x: UnitImages, slots: Slots, rng_key: RandomKey, std: float) -> UnitImages:
    """Add independent normal noise to every value."""
    return x + std * rng_key("gaussian noise").normal(slots, *x.shape[1:])


def add_shot_noise(x: UnitImages, slots: Slots, rng_key: RandomKey, photons: float) -> UnitImages:
    """Replace every value by the share of photons that a sensor counts.

    The count is Poisson with mean `photons` times the value. It comes from inverting the distribution
    function at a uniform number.
    """
    levels = (x * 255).round().long()
    table = tabulate_poisson(photons, x.device)
    uniform = rng_key("shot noise").uniform(slots, *x.shape[1:]).double()
    place = torch.searchsorted(table.flatten(), uniform + levels, right=True)
    return (place - levels * table.shape[1]).double() / photons


@functools.lru_cache(maxsize=16)
def tabulate_poisson(photons: float, device: torch.device) -> Float64[Tensor, "256 k"]:
    """Tabulate Poisson distribution functions for all uint8 values.

    Row v holds v + P(X <= k) for k = 0, 1, 2 and so on, where X is Poisson with mean `photons` v / 255. The row
    lies between v and v + 1, so the flattened table ascends.
    """
    levels = torch.arange(256, dtype=torch.float64)[:, None]
    largest = int(photons + 10 * photons**0.5 + 20)
    counts = torch.arange(largest, dtype=torch.float64)
    table = torch.special.gammaincc(counts + 1, levels / 255 * photons)
    table[:, -1] = 1
    return (levels + table).to(device)


def add_impulse_noise(x: UnitImages, slots: Slots, rng_key: RandomKey, share: float) -> UnitImages:
    """Set a share of the values to 0 or 1 ("salt and pepper"), with equal probability."""
    uniform = rng_key("impulse noise").uniform(slots, *x.shape[1:])
    impulses = (uniform >= share / 2).double()
    return torch.where(uniform < share, impulses, x)


NOISE = {
    "gaussian_noise": Corruption(
        add_gaussian_noise,
        small=((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        large=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    ),
    "shot_noise": Corruption(
        add_shot_noise,
        small=((500,), (250,), (100,), (75,), (50,)),
        large=((60,), (25,), (12,), (5,), (3,)),
    ),
    "impulse_noise": Corruption(
        add_impulse_noise,
        small=((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        large=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    ),
}
"""Noise corruptions by name."""

"""Keys: named random numbers, equal in numpy and torch, well distributed, independent of who draws them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nearfar.core import RandomKey
from nearfar.core.random_key import _kernels

seeds = st.integers(0, 2**63 - 1)
slots = st.lists(st.integers(0, 2**62), min_size=1, max_size=20).map(lambda s: np.array(s, dtype=np.int64))


def splitmix64(x: int) -> int:
    """The published algorithm in plain integers."""
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


@given(seeds, slots)
def test_bits_are_splitmix64_of_slot_word_and_column(seed, slots):
    rng_key = RandomKey(seed)("a", 3)
    for slot, row in zip(slots.tolist(), rng_key.bits(slots, 3).tolist(), strict=True):
        start = splitmix64(splitmix64(slot) ^ rng_key.hash_value)
        assert row == [splitmix64((start + c * 0xD1342543DE82EF95) % 2**64) for c in range(3)]


@given(seeds, slots)
def test_numpy_and_torch_agree_to_the_last_bit(seed, slots):
    rng_key = RandomKey(seed)("x")
    t = torch.as_tensor(slots)
    assert np.array_equal(rng_key.bits(slots, 2).view(np.int64), rng_key.bits(t, 2).numpy())
    assert np.array_equal(rng_key.uniform(slots, 2, 3), rng_key.uniform(t, 2, 3).numpy())
    assert np.array_equal(rng_key.normal(slots, 5), rng_key.normal(t, 5).numpy())
    assert np.array_equal(rng_key.integers(slots, 97, 4), rng_key.integers(t, 97, 4).numpy())


@given(seeds, slots, st.randoms())
def test_a_row_depends_on_its_slot_alone(seed, slots, random):
    rng_key = RandomKey(seed)
    order = list(range(len(slots)))
    random.shuffle(order)
    whole = rng_key.uniform(slots, 4)
    assert np.array_equal(rng_key.uniform(slots[order], 4), whole[order])
    assert np.array_equal(rng_key.uniform(slots, 2), whole[:, :2])


def test_names_make_different_streams_and_equal_names_equal_ones():
    words = {RandomKey(s)(*p).hash_value for s in range(20) for p in [(), ("a",), ("b",), ("a", 1), ("a", "1"), (1, "a"), ("a1",)]}
    assert len(words) == 20 * 7
    assert RandomKey(1)("a")(2) == RandomKey(1)("a", 2) == RandomKey(1)("a", np.int64(2))
    assert RandomKey(1)("a", 2).hash_value == RandomKey(1)("a", np.int64(2)).hash_value


def test_known_answers_never_change():
    """A change here breaks the repeatability of every stored run."""
    rng_key = RandomKey(0)("order", 1)
    assert rng_key.hash_value == 14119515304366396025
    assert rng_key.bits(np.array([0, 1]))[:, 0].tolist() == [18015786721604657972, 15871985886610679755]
    assert rng_key.permutation(8).tolist() == [6, 4, 3, 7, 5, 1, 2, 0]


@pytest.mark.parametrize("n", [1000, 1_000_000])
def test_permutations_rise_as_often_as_they_fall(n):
    """Ties of a sort key with too few bits are left in rising order: a million rows notice 24 bits, a thousand notice 8."""
    found = RandomKey(4)("order").permutation(n)
    assert np.array_equal(np.sort(found), np.arange(n))
    rises = int((found[1:] > found[:-1]).sum())
    assert abs(rises - (n - 1) / 2) < 4 * np.sqrt((n + 1) / 12), "four standard deviations"


@pytest.mark.parametrize(("draw", "cdf"), [("uniform", stats.uniform.cdf), ("normal", stats.norm.cdf)])
def test_distributions(draw, cdf):
    x = getattr(RandomKey(5)(draw), draw)(np.arange(20_000), 5)
    assert stats.kstest(x.ravel(), cdf).pvalue > 1e-3
    assert abs(np.corrcoef(x.T) - np.eye(5)).max() < 0.03
    assert abs(np.corrcoef(x[:-1, 0], x[1:, 0])[0, 1]) < 0.03


def test_integers_are_even_and_in_range():
    x = RandomKey(2).integers(np.arange(30_000), 7, 3)
    assert x.min() == 0
    assert x.max() == 6
    assert stats.chisquare(np.bincount(x.ravel())).pvalue > 1e-3


def test_seeded_is_a_pure_name_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    with RandomKey(3)("init").fork_torch_rng():
        a = torch.rand(4)
    with RandomKey(3)("init").fork_torch_rng():
        b = torch.rand(4)
    with RandomKey(3)("other").fork_torch_rng():
        c = torch.rand(4)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("slots", [np.arange(3), torch.arange(3)], ids=["numpy", "torch"])
def test_nothing_is_drawn_where_nothing_is_asked_for(slots):
    assert (
        RandomKey(0).uniform(slots, 4, 0).shape
        == RandomKey(0).normal(slots, 4, 0).shape
        == RandomKey(0).integers(slots, 9, 4, 0).shape
        == (3, 4, 0)
    )


KERNEL = """
import torch
from nearfar.core import RandomKey
from nearfar.core import gpu_hashing as hashing
from nearfar.core.random_key import _kernels, _signed
slots = torch.cat([torch.arange(700), torch.tensor([2**62, 2**40 + 1, -5])])
for word, columns in ((RandomKey(5)("crop").hash_value, 3), (RandomKey(0)("flip").hash_value, 1), (1, 7), (2**64 - 1, 2)):
    rng_key = type("Named", (RandomKey,), {"hash_value": word})(0)
    assert torch.equal(hashing.bits(slots, _signed(word), columns), rng_key.bits(slots, columns))
    assert torch.equal(hashing.uniform(slots, _signed(word), columns), rng_key.uniform(slots, columns))
assert hashing.uniform(slots[:0], 1, 4).shape == (0, 4)
assert _kernels("cpu") is hashing
_kernels.cache_clear()
right, hashing.uniform = hashing.uniform, lambda *asked: right(*asked) + 2**-24
assert _kernels("cpu") is None, "a kernel whose numbers are others is not used"
print("equal")
"""


@pytest.mark.slow
def test_the_kernel_gives_the_same_bits():
    """By Triton's interpreter on a CPU; benchmarks/gpu.py compares on a GPU."""
    pytest.importorskip("triton")
    found = subprocess.run([sys.executable, "-c", KERNEL], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert found.stdout == "equal\n", found.stderr


def test_without_a_kernel_numbers_are_made_as_ever(caplog):
    """Triton has nothing to compile for on a CPU, as where it lacks a compiler: that is noticed once, and said."""
    caplog.set_level("INFO", "nearfar")
    _kernels.cache_clear()
    assert _kernels("cpu") is None
    assert _kernels("cpu") is None
    assert [r.message[:40] for r in caplog.records] == ["random numbers on cpu are generated by m"]

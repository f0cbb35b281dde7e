"""The drawn split: disjoint, complete, stratified, and a function of the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.core import RandomKey, UsageError
from nearfar.data import load_images
from nearfar.data.common.splits import draw_test_ids

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 4, 4), dtype=np.uint8)

label_lists = st.lists(st.integers(0, 5), min_size=2, max_size=200)
seeds = st.integers(0, 2**32)


@given(label_lists, seeds)
def test_stratified(labels, seed):
    y = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    test = draw_test_ids(len(y), y, RandomKey(seed)("split"))
    assert test.tolist() == sorted(set(test.tolist()))
    for c in range(y.max() + 1):
        members, taken = int((y == c).sum()), int((y[test] == c).sum())
        assert taken == (0 if members == 1 else max(1, round(members / 5)))


@given(st.integers(2, 300), seeds)
def test_without_labels_one_in_five(n, seed):
    test = draw_test_ids(n, None, RandomKey(seed)("split"))
    assert len(test) == max(1, round(n / 5))
    assert len(set(test.tolist())) == len(test)
    assert 0 <= test.min() <= test.max() < n


@given(seeds)
def test_same_seed_same_split_other_seed_other_split(seed):
    labels = np.arange(60) % 3
    first, again, other = (load_images((PIXELS, labels), seed=s) for s in (seed, seed, seed + 1))
    assert first.test_ids == again.test_ids != other.test_ids
    assert first.train.fingerprint == again.train.fingerprint != other.train.fingerprint


def test_every_sample_is_drawn_about_equally_often():
    """1,000 seeds, a fifth of the rows each: 200 +- 5 standard deviations (12.6)."""
    counts = np.zeros(60)
    for seed in range(1000):
        counts[draw_test_ids(60, None, RandomKey(seed)("split"))] += 1
    assert np.abs(counts - 200).max() < 64


def test_parts_are_disjoint_and_complete():
    splits = load_images((PIXELS, np.arange(60) % 4))
    assert splits.test is not None
    names = [part.name(i) for part in (splits.train, splits.test) for i in range(len(part))]
    assert sorted(names) == sorted(f"row {i}" for i in range(60))
    assert splits.test_ids == [int(splits.test.name(i).split()[1]) for i in range(len(splits.test))]
    np.testing.assert_array_equal(splits.test.read(range(len(splits.test))).numpy()[:, 0], PIXELS[splits.test_ids])


def test_a_stored_split_is_reproduced_whatever_the_seed():
    first = load_images(PIXELS, seed=1)
    again = load_images(PIXELS, seed=2, test_ids=first.test_ids)
    assert again.test is not None
    assert first.test is not None
    assert again.test_ids == first.test_ids
    assert (again.train.fingerprint, again.test.fingerprint) == (first.train.fingerprint, first.test.fingerprint)


def test_no_test_split_where_none_is_asked_for_or_possible():
    asked = load_images(PIXELS, test_ids=[])
    assert (asked.test, asked.test_ids, len(asked.train)) == (None, [], 60)
    impossible = load_images((PIXELS, np.arange(60)))
    assert (impossible.test, impossible.test_ids, len(impossible.train)) == (None, [], 60)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ([3, 60], r"contains row 60, but array of shape \(60, 4, 4\) has 60 rows"),
        ([-1], "contains row -1"),
        ([3, 3], "contains a row twice"),
        (list(range(60)), "leaves none of the 60 rows"),
        (np.array([0.5]), "a list of row numbers"),
    ],
)
def test_impossible_stored_splits(split, message):
    with pytest.raises(UsageError, match=message):
        load_images(PIXELS, test_ids=split)


def test_a_stored_split_does_not_override_the_data_s_own(tmp_path):
    np.savez(tmp_path / "d.npz", x_train=PIXELS, x_test=PIXELS)
    with pytest.raises(UsageError, match="has its own test split"):
        load_images(tmp_path / "d.npz", test_ids=[1, 2])

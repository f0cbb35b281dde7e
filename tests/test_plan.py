"""Plans: epochs without replacement, random access, shares and chunks that are slices of one step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.core import Plan, RandomKey, UsageError
from nearfar.core import plan as plan_module
from nearfar.core.plan import permute_indices


@given(st.integers(1, 60), st.data())
def test_an_epoch_visits_every_sample_at_most_once(n, data):
    batch = data.draw(st.integers(1, n))
    plan = Plan(n, batch, RandomKey(data.draw(st.integers(0, 99))))
    per = plan.steps_per_epoch
    for epoch in range(2):
        ids = np.concatenate([plan.get_rows(epoch * per + k).ids for k in range(per)])
        assert len(set(ids.tolist())) == per * batch
        assert set(ids.tolist()) <= set(range(n))


def test_slots_are_unique_over_the_run_and_orders_differ_between_epochs_and_seeds():
    plan = Plan(100, 10, RandomKey(0))
    slots = np.concatenate([plan.get_rows(t).slots for t in range(35)])
    assert slots.tolist() == list(range(350))
    assert plan.get_rows(0).ids.tolist() != plan.get_rows(10).ids.tolist()
    assert plan.get_rows(0).ids.tolist() != Plan(100, 10, RandomKey(1)).get_rows(0).ids.tolist()


def test_steps_need_no_history():
    late = Plan(1000, 7, RandomKey(4)).get_rows(5000)
    plan = Plan(1000, 7, RandomKey(4))
    for t in (0, 3, 4999):
        plan.get_rows(t)
    assert np.array_equal(plan.get_rows(5000).ids, late.ids)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 45))
def test_shares_and_chunks_put_together_are_the_step(batch, world, chunk):
    rows = Plan(50, batch, RandomKey(1)).get_rows(2)
    parts = [c for r in range(world) for c in rows.select_rank_share(r, world).split(chunk) if len(c)]
    assert np.concatenate([p.ids for p in parts]).tolist() == rows.ids.tolist()
    assert np.concatenate([p.slots for p in parts]).tolist() == rows.slots.tolist()
    assert all(len(p) <= chunk and np.array_equal(p.batch_ids, rows.ids) for p in parts)
    sizes = [len(rows.select_rank_share(r, world)) for r in range(world)]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 3000), st.integers(0, 5))
def test_feistel_is_a_permutation(n, seed):
    assert sorted(permute_indices(RandomKey(seed), n, np.arange(n)).tolist()) == list(range(n))


def test_huge_data_need_no_table(monkeypatch):
    plan = Plan(10**12, 1024, RandomKey(0))
    ids = plan.get_rows(10**8).ids
    assert len(set(ids.tolist())) == 1024
    assert ids.max() < 10**12
    monkeypatch.setattr(plan_module, "MAX_SAMPLES_FOR_ORDER_TABLE", 10)
    small = Plan(103, 10, RandomKey(0))
    assert len(set(np.concatenate([small.get_rows(t).ids for t in range(10)]).tolist())) == 100


def test_a_batch_larger_than_the_data_is_named():
    with pytest.raises(UsageError, match=r"batch 256 is larger than the data: 100 training samples.*--batch-size 100"):
        Plan(100, 256, RandomKey(0))
    with pytest.raises(UsageError, match="at least 1"):
        Plan(100, 0, RandomKey(0))

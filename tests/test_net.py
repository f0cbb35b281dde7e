"""Ema, Queue and Bank: known answers of their arithmetic and order; all state in the state_dict."""

from __future__ import annotations

import torch
from torch import nn

from nearfar.core import Ema, MemoryBank, Net, Queue, RandomKey


def filled(queue: Queue) -> Queue:
    with torch.no_grad():
        queue.rows.zero_()
    return queue


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def test_queue_overwrites_its_oldest_rows_first():
    queue = filled(Queue(5, 1))
    queue.push(column(1, 2, 3))
    assert queue.rows[:, 0].tolist() == [1, 2, 3, 0, 0]
    assert queue.head.item() == 3
    queue.push(column(4, 5, 6))
    assert queue.rows[:, 0].tolist() == [6, 2, 3, 4, 5]
    assert queue.head.item() == 1


def test_a_push_larger_than_the_queue_keeps_the_newest():
    queue = filled(Queue(3, 1))
    queue.push(column(1, 2, 3, 4, 5))
    assert sorted(queue.rows[:, 0].tolist()) == [3, 4, 5]
    queue.push(column(6))
    assert sorted(queue.rows[:, 0].tolist()) == [4, 5, 6]


def test_queue_starts_as_keyed_unit_vectors_and_pushes_no_graph():
    with RandomKey(0)("q").fork_torch_rng():
        queue = Queue(64, 8)
    with RandomKey(0)("q").fork_torch_rng():
        again = Queue(64, 8)
    assert torch.equal(queue.rows, again.rows)
    assert torch.allclose(queue.rows.norm(dim=1), torch.ones(64))
    queue.push(torch.ones(2, 8, requires_grad=True) * 2)
    assert not queue.rows.requires_grad


def test_ema_follows_by_the_formula_and_takes_no_gradient():
    source = nn.Linear(2, 1)
    follower = Ema(source)
    start = follower.module.weight.clone()
    with torch.no_grad():
        source.weight.add_(1)
    assert torch.equal(follower.module.weight, start)
    follower.follow(source, 0.9)
    assert torch.allclose(follower.module.weight, 0.9 * start + 0.1 * source.weight)
    follower.follow(source, 0.0)
    assert torch.equal(follower.module.weight, source.weight)
    out = follower(torch.ones(1, 2, requires_grad=True))
    assert not out.requires_grad
    assert not any(p.requires_grad for p in follower.parameters())


def test_ema_at_rate_one_stays_and_keeps_its_own_statistics():
    source = nn.BatchNorm1d(3)
    follower = Ema(source)
    follower(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) + 5)
    mean = follower.module.running_mean.clone()
    assert mean.abs().sum() > 0
    with torch.no_grad():
        source.weight.fill_(7)
    follower.follow(source, 1.0)
    assert torch.equal(follower.module.weight, torch.ones(3))
    assert torch.equal(follower.module.running_mean, mean)


def test_bank_reads_what_was_put():
    bank = MemoryBank(4, 2)
    bank.put(torch.tensor([3, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert bank[torch.tensor([1, 3, 0])].tolist() == [[3, 4], [1, 2], [0, 0]]
    labels = MemoryBank(3, dtype=torch.long)
    labels.put(slice(None), torch.tensor([2, 0, 1]))
    assert labels[torch.tensor([0])].tolist() == [2]


def test_all_state_is_in_the_state_dict():
    net = Net(encoder=nn.Linear(2, 2), scale=nn.Parameter(torch.ones(())), prior=torch.arange(3.0), queue=Queue(2, 2), bank=MemoryBank(2))
    assert set(net.state_dict()) == {
        "encoder.weight", "encoder.bias", "scale", "prior", "queue.rows", "queue.head", "bank.rows",
    }  # fmt: skip
    assert {n for n, _ in net.named_parameters()} == {"encoder.weight", "encoder.bias", "scale"}

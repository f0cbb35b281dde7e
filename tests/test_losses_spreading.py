"""The spreading term: loops in double precision, gradients, blocks, edges, and what it is for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearfar.losses import info_nce, spreading
from nearfar.scores import Scores, cosine
from nearfar.scores import table as table_module


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive(S) -> list[float]:
    """The equation, entry by entry, with every probability taken from the others' sum."""
    scores, pos, neg = S.to_dense().tolist(), S.positive_mask.tolist(), S.negative_mask.tolist()
    rows = []
    for s, p, n in zip(scores, pos, neg, strict=True):
        candidates = [k for k in range(len(s)) if p[k] or n[k]]
        whole = math.fsum(math.exp(s[k] - max(s)) for k in candidates)
        without = [math.fsum(math.exp(s[k] - max(s)) for k in candidates if k != i) for i in range(len(s))]
        rows.append(-math.fsum(math.log(without[i] / whole) for i in range(len(s)) if n[i] and without[i]))
    return rows


def tables(n: int, seed: int) -> dict:
    a, b = _randn(n, 3, seed=seed), _randn(n, 3, seed=seed + 1)
    y = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
    return {
        "of itself": Scores.from_pairs(a, a), "pairs": Scores.from_pairs(a, b), "views": Scores.from_views(a, b),
        "labelled": Scores.from_labels(a, y),
        "matched": Scores.from_matched(a, b, negatives=_randn(5, 3, seed=seed + 2)), "listed": Scores.from_lists(_randn(n, 2),
        _randn(n, 3, seed=seed)),
        "skipped": Scores.from_pairs(a, b).exclude_negatives(y, y),
    }  # fmt: skip


@given(st.integers(1, 6), st.sampled_from([0.05, 0.5, 3.0]), st.integers(0, 50))
def test_spreading_agrees_with_its_equation(n, tau, seed):
    for name, S in tables(n, seed).items():
        expected = torch.tensor(naive(S / tau), dtype=torch.float64)
        torch.testing.assert_close(spreading(S / tau), expected, rtol=1e-9, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


def test_the_gradient_is_right_and_streaming_changes_nothing(monkeypatch):
    a, b = _randn(5, 3).requires_grad_(), _randn(5, 3, seed=1).requires_grad_()
    y = torch.tensor([0, 1, 0, 2, -1])
    makers = (
        lambda a, b: Scores.from_pairs(a, b),
        lambda a, b: Scores.from_pairs(a, a),
        lambda a, b: Scores.from_labels(a, y),
        lambda a, b: Scores.from_matched(a, b, negatives=a + b),
    )
    for make in makers:
        assert torch.autograd.gradcheck(lambda a, b, make=make: spreading(make(a, b) / 0.3), (a, b))
        whole = spreading(make(a, b) / 0.3)
        monkeypatch.setattr(table_module, "ENTRIES_PER_BLOCK", 7)  # a row at a time
        streamed = spreading(make(a, b) / 0.3)
        monkeypatch.undo()
        torch.testing.assert_close(streamed, whole)
        torch.testing.assert_close(*(torch.autograd.grad(x.square().sum(), (a, b), allow_unused=True)[0] for x in (streamed, whole)))


def test_a_sure_mistake_keeps_its_digits_and_its_gradient():
    """P of the wrong candidate is 1 - e^-40 (1 in single precision): -log(1 - P) is 40, and falls by 1 for each unit of its score."""
    neg = torch.tensor([[40.0, -50.0]], requires_grad=True)
    loss = spreading(Scores.from_lists(torch.zeros(1, 1), neg))
    assert float(loss.detach()) == pytest.approx(40.0)
    loss.sum().backward()
    assert neg.grad is not None
    assert neg.grad[0].tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("tau", [1e-3, 0.07, 10.0])
def test_extreme_temperatures_and_degenerate_rows_are_finite(tau):
    z = torch.cat([torch.zeros(1, 4), torch.ones(2, 4), -torch.ones(1, 4)]).requires_grad_()
    for S in (
        Scores.from_pairs(z, z),
        Scores.from_views(z, z),
        Scores.from_labels(z, torch.zeros(4, dtype=torch.long)),
        Scores.from_pairs(z[:1], z[:1]),
    ):
        loss = spreading(S / tau)
        (grad,) = torch.autograd.grad(loss.sum(), z, allow_unused=True)
        assert loss.isfinite().all()
        assert grad.isfinite().all()


def test_who_has_nobody_to_lose_against_counts_nothing():
    nothing = torch.zeros(3, 0)
    assert spreading(Scores.from_lists(nothing, nothing)).tolist() == [0, 0, 0]
    assert spreading(Scores.from_lists(nothing, torch.ones(3, 1))).tolist() == [0, 0, 0]
    assert spreading(Scores.from_lists(torch.ones(3, 2), nothing)).tolist() == [0, 0, 0]


def test_memory_is_that_of_a_block_and_not_of_the_table(monkeypatch):
    largest = 0
    original = cosine.table

    def watched(a, b):
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return original(a, b)

    z = _randn(300, 4).float()
    S = Scores.from_pairs(z, z, score=lambda a, b: watched(cosine.prepare_vectors(a), cosine.prepare_vectors(b)))
    monkeypatch.setattr(table_module, "ENTRIES_PER_BLOCK", 3000)
    spreading(S)
    assert 0 < largest <= 3000


def test_descending_it_spreads_points_evenly():
    """In a table of a batch against itself everybody's positive is itself: all that is left to do is to move apart."""
    z = torch.nn.functional.normalize(_randn(6, 2), dim=1)

    def train(loss) -> torch.Tensor:
        x = z.clone().requires_grad_()
        for _ in range(300):
            (grad,) = torch.autograd.grad(loss(x).mean(), x)
            x = torch.nn.functional.normalize(x - 0.1 * grad, dim=1).detach().requires_grad_()
        return x.detach()

    def nearest(x: torch.Tensor) -> float:
        return float((x @ x.T - 2 * torch.eye(6)).amax())

    spread = train(lambda x: spreading(Scores.from_pairs(x, x) / 0.1))
    assert nearest(spread) < 0.6 < nearest(z)  # six points on a circle: cos 60° = 0.5 at best
    assert float(info_nce(Scores.from_pairs(spread, spread) / 0.1).mean()) < float(info_nce(Scores.from_pairs(z, z) / 0.1).mean())

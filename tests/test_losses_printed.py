"""Formulas that are often printed wrongly: what the printed form would do, and that ours does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from nearfar.losses import debiased, hard_negative, mil_nce, n_pair, nt_xent, sigmoid, supcon
from nearfar.scores import Scores, cosine


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_temperature_belongs_into_the_exponent():
    """exp(z·z')/tau instead of exp(z·z'/tau): tau cancels and does nothing."""
    z0, z1 = _randn(5, 3), _randn(5, 3, seed=1)
    z = F.normalize(torch.cat([z0, z1]), dim=1)
    others = ~torch.eye(10, dtype=torch.bool)

    def printed(tau: float) -> torch.Tensor:
        e = (z @ z.T).exp() / tau
        return -(e.roll(5, 0).diagonal() / (e * others).sum(1)).log().mean()

    torch.testing.assert_close(printed(0.1), printed(1.0))
    assert nt_xent(z0, z1, 0.1) > nt_xent(z0, z1, 1.0) + 0.5
    torch.testing.assert_close(nt_xent(z0, z1, 1.0), printed(1.0))


def test_a_similarity_enters_binary_nce_with_the_other_sign():
    """p(alike) = 1/(1 + e^s) of a similarity s would push positives apart."""
    pos, neg = _randn(4, 1).requires_grad_(), _randn(4, 3, seed=1).requires_grad_()
    printed = -(1 / (1 + pos.exp())).log().sum() - (1 - 1 / (1 + neg.exp())).log().sum()
    assert (torch.autograd.grad(printed, pos)[0] > 0).all()
    ours = torch.autograd.grad(sigmoid(Scores.from_lists(pos, neg)).sum(), (pos, neg))
    assert (ours[0] < 0).all()
    assert (ours[1] > 0).all()


def test_soft_nearest_neighbours_take_a_distance():
    """exp(-f/tau) of a *similarity* f prefers neighbors of other classes."""
    similarity_pos, similarity_neg = _randn(4, 2).requires_grad_(), _randn(4, 3, seed=1)
    printed = mil_nce(Scores.from_lists(similarity_pos, similarity_neg) * -1).sum()
    assert (torch.autograd.grad(printed, similarity_pos)[0] > 0).all()
    ours = mil_nce(Scores.from_lists(similarity_pos, similarity_neg)).sum()
    assert (torch.autograd.grad(ours, similarity_pos)[0] < 0).all()


def test_supcon_divides_by_the_number_of_other_positives():
    """1/(2|N| - 1), where N already counts all augmented rows, is less than half, and depends on the size of the class."""
    z, y, tau = _randn(9, 4), torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2]), 0.3
    u = F.normalize(z, dim=1)
    log_p = (u @ u.T / tau).fill_diagonal_(-math.inf).log_softmax(1)
    mean, printed = [], []
    for i in range(9):
        same = [j for j in range(9) if j != i and y[j] == y[i]]
        total = -sum(float(log_p[i, j]) for j in same)
        size = len(same) + 1
        mean.append(total / (size - 1))
        printed.append(total / (2 * size - 1))
    ours = supcon(Scores.from_labels(z, y) / tau)
    torch.testing.assert_close(ours, torch.tensor(mean, dtype=torch.float64))
    shares = torch.tensor(printed, dtype=torch.float64) / ours
    torch.testing.assert_close(shares, torch.tensor([4 / 9] * 5 + [1 / 3] * 4, dtype=torch.float64))


def test_debiased_divides_by_the_temperature_everywhere():
    """Exponentials without /tau beside a floor exp(-1/tau): the floor, meant as the least value there is, can never hold."""
    q, negatives, eta, tau = _randn(6, 3), _randn(8, 3, seed=2), 0.3, 0.2
    k = q + 0.01 * _randn(6, 3, seed=1)
    u, v, w = (F.normalize(x, dim=1) for x in (q, k, negatives))
    s_pos, s_neg = (u * v).sum(1), u @ w.T
    printed = (s_neg.exp().mean(1) - eta * s_pos.exp()) / (1 - eta)
    right = ((s_neg / tau).exp().mean(1) - eta * (s_pos / tau).exp()) / (1 - eta)
    assert (printed > math.exp(-1 / tau)).all()
    assert (right < math.exp(-1 / tau)).any(), "near positives: here the floor is needed"
    g = right.clamp_min(math.exp(-1 / tau))
    expected = -((s_pos / tau).exp() / ((s_pos / tau).exp() + 8 * g)).log()
    torch.testing.assert_close(debiased(Scores.from_matched(q, k, negatives=negatives) / tau, eta), expected)


def test_hard_positives_are_drawn_from_the_positives():
    """With p in place of p⁺ the subtracted mean is the one it is subtracted from: the correction cancels."""
    eta, beta = 0.2, 1.0
    pos, neg = _randn(4, 2).tanh(), _randn(4, 6, seed=1).tanh()
    hard = lambda s: ((1 + beta) * s).exp().mean(1) / (beta * s).exp().mean(1)
    printed = (hard(neg) - eta * hard(neg)) / (1 - eta)
    torch.testing.assert_close(printed, hard(neg))
    right = ((hard(neg) - eta * hard(pos)) / (1 - eta)).clamp_min(math.exp(-1.0))
    assert (right != printed).all()
    found = hard_negative(replace(Scores.from_lists(pos, neg), score=cosine), eta, beta)
    torch.testing.assert_close(found, (1 + 6 * right / pos.exp().mean(1)).log())


def test_n_pair_has_one_positive():
    """The negatives of row i are the others' positives: j = i in the sum would add exp(0) = 1 to each row and bound the loss by log 2."""
    a, b = _randn(5, 3), _randn(5, 3, seed=1)
    terms = [[math.exp(sum(float(x * (y - z)) for x, y, z in zip(a[i], b[j], b[i], strict=True))) for j in range(5)] for i in range(5)]
    rows = [math.log(1 + sum(term for j, term in enumerate(row) if j != i)) for i, row in enumerate(terms)]
    printed = [math.log(1 + sum(row)) for row in terms]
    assert float(n_pair(a, b)) == pytest.approx(sum(rows) / 5, rel=1e-9)
    assert sum(printed) / 5 > sum(rows) / 5 + 0.1
    apart = 20 * torch.eye(5, dtype=torch.float64)
    assert float(n_pair(apart, apart)) == pytest.approx(0.0, abs=1e-9), "nothing is left where positives alone are alike"

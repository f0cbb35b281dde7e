"""Losses of embeddings: alignment, uniformity, Barlow, BYOL."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nearfar.losses import alignment, barlow_twins, byol, info_nce, uniformity
from nearfar.scores import Scores
from nearfar.scores import table as table_module


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("alpha", [1, 2, 3.5])
def test_alignment(alpha):
    a, b = _randn(6, 3), _randn(6, 3, seed=1)
    expected = np.mean(np.linalg.norm(F.normalize(a, dim=1).numpy() - F.normalize(b, dim=1).numpy(), axis=1) ** alpha)
    assert float(alignment(a, b, alpha)) == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda a, b: alignment(a, b, alpha), (a.requires_grad_(), b.requires_grad_()))
    assert torch.autograd.grad(alignment(a, a, alpha), a)[0].isfinite().all(), "coinciding pairs"


@pytest.mark.parametrize("t", [0.5, 2])
def test_uniformity_is_the_mean_potential_of_all_pairs(t, monkeypatch):
    z = _randn(9, 3).requires_grad_()
    expected = torch.pdist(F.normalize(z, dim=1)).square().mul(-t).exp().mean().log()
    gradient = torch.autograd.grad(expected, z)
    for direct in (table_module.MAX_DENSE_ENTRIES, 0):
        monkeypatch.setattr(table_module, "MAX_DENSE_ENTRIES", direct)
        found = uniformity(z, t)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, z), gradient)


def test_uniformity_of_known_arrangements():
    assert float(uniformity(torch.ones(5, 3))) == pytest.approx(0, abs=1e-6)
    assert float(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))) == pytest.approx(-8)
    lonely = torch.ones(1, 3, requires_grad=True)
    uniformity(lonely).backward()
    assert lonely.grad is not None
    assert not lonely.grad.any()


def test_uniform_points_on_a_sphere_reach_the_closed_form():
    """E exp(-t|x - y|²) on the 2-sphere is (1 - e^-4t) / 4t: the inner product of two uniform points is uniform."""
    z = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0))
    assert float(uniformity(z, 2)) == pytest.approx(math.log((1 - math.exp(-8)) / 8), abs=0.01)


def test_info_nce_tends_to_alignment_and_uniformity():
    """With M negatives, L - log M tends to -E s⁺ + E log E e^s: the logarithm of M is to be subtracted."""
    q, k, tau = _randn(20, 3), _randn(20, 3, seed=1), 0.5
    u, v = F.normalize(q, dim=1), F.normalize(k, dim=1)
    far = F.normalize(_randn(200_000, 3, seed=2), dim=1)
    limit = (-(u * v).sum(1) / tau + (u @ far.T / tau).exp().mean(1).log()).mean()
    errors = [abs(float(info_nce(Scores.from_matched(q, k, negatives=far[:m]) / tau).mean() - math.log(m) - limit)) for m in (10, 100_000)]
    assert errors[1] < 5e-3 < errors[0]


def test_barlow_against_numpy():
    a, b = _randn(20, 4), _randn(20, 4, seed=1) + 0.5 * _randn(20, 4)
    c = np.corrcoef(a.numpy(), b.numpy(), rowvar=False)[:4, 4:]
    expected = sum((1 - c[i, i]) ** 2 + 0.01 * sum(c[i, j] ** 2 for j in range(4) if j != i) for i in range(4))
    assert float(barlow_twins(a, b, redundancy_weight=0.01, eps=0)) == pytest.approx(expected)
    assert float(barlow_twins(a, b, redundancy_weight=0.01)) == pytest.approx(expected, rel=1e-4)


def test_barlow_gradient_and_edges():
    a, b = _randn(5, 3).requires_grad_(), _randn(5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: barlow_twins(a, b, redundancy_weight=0.1), (a, b))
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(barlow_twins(a, b), barlow_twins(a[order], b[order]))
    for z in (torch.ones(4, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)):
        loss = barlow_twins(z, z)
        assert float(loss.detach()) == pytest.approx(3), "constant features correlate with nothing"
        loss.backward()
        assert z.grad is not None
        assert z.grad.isfinite().all()


def test_barlow_must_be_centred():
    """As printed without centring, features with a mean look redundant although they are independent."""
    a = _randn(4000, 3) + 5
    uncentred = F.normalize(a, dim=0).T @ F.normalize(a, dim=0)
    assert uncentred[0, 1] > 0.9
    assert barlow_twins(a, a, redundancy_weight=1.0) < 0.02


def test_byol():
    p, t = _randn(6, 3).requires_grad_(), _randn(6, 3, seed=1).requires_grad_()
    expected = (F.normalize(p, dim=1) - F.normalize(t, dim=1)).square().sum(1)
    torch.testing.assert_close(byol(p, t), expected)
    byol(p, t).sum().backward()
    assert t.grad is None
    torch.testing.assert_close(byol(3 * t, t), torch.zeros(6, dtype=torch.float64))
    zero = torch.zeros(2, 3, requires_grad=True)
    values = byol(zero, torch.ones(2, 3))
    assert values.tolist() == [2, 2]
    values.sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()

"""Scores of vectors: known values, zero rows, learned ones, exchanged sides."""

from __future__ import annotations

import pytest
import torch
from scipy.spatial.distance import cdist
from torch import nn

from nearfar.scores import as_score, bilinear, build_learned_score, cosine, dot, euclidean, l2_normalize, squared_euclidean


def _vectors(n=6, m=5, d=3, far=0.0):
    g = torch.Generator().manual_seed(1)
    return (torch.randn(k, d, generator=g, dtype=torch.float64).add(far).requires_grad_() for k in (n, m))


@pytest.mark.parametrize(("score", "metric"), [(cosine, "cosine"), (euclidean, "euclidean"), (squared_euclidean, "sqeuclidean")])
def test_against_scipy(score, metric):
    a, b = _vectors()
    distance = cdist(a.detach(), b.detach(), metric)
    expected = 1 - distance if metric == "cosine" else -distance
    torch.testing.assert_close(score(a, b).detach(), torch.as_tensor(expected))


@pytest.mark.parametrize("score", [cosine, dot, euclidean, squared_euclidean, bilinear(torch.ones(3, 3, dtype=torch.float64).triu())])
def test_pairs_are_the_diagonal_and_T_exchanges_the_sides(score):
    a, b = _vectors(5, 5)
    ready = score.prepare_vectors(a), score.prepare_vectors(b)
    torch.testing.assert_close(score.score_pairs(*ready), score(a, b).diagonal())
    torch.testing.assert_close(score.T(b, a), score(a, b).T)
    torch.testing.assert_close(score.T.score_pairs(ready[1], ready[0]), score(a, b).diagonal())


def test_pairs_of_any_function_are_diagonals_of_small_squares():
    a, b = _vectors(37, 37)
    score = as_score(lambda a, b: (a[:, None] * b.sin()).sum(2).exp())
    torch.testing.assert_close(score.score_pairs(a, b), score(a, b).diagonal())


@pytest.mark.parametrize("score", [cosine, dot, euclidean, squared_euclidean])
def test_gradcheck(score):
    a, b = _vectors(4, 3)
    assert torch.autograd.gradcheck(score, (a, b))


def test_squared_distance_keeps_its_digits_far_from_the_origin():
    a, b = (x.detach() for x in _vectors(far=300.0))
    exact = torch.as_tensor(cdist(a, b, "sqeuclidean"))
    found = -squared_euclidean(a.float(), b.float()).double()
    assert ((found - exact).abs() / exact).max() < 1e-4
    naive = (a.float().square().sum(1, keepdim=True) + b.float().square().sum(1) - 2 * a.float() @ b.float().T).double()
    assert ((naive - exact).abs() / exact).max() > 1e-3


def test_a_zero_vector_has_cosine_zero_and_no_gradient():
    a = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    table = cosine(a, a)
    torch.testing.assert_close(table, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    table.exp().sum().backward()
    assert a.grad is not None
    assert a.grad[0].tolist() == [0.0, 0.0]
    assert a.grad.isfinite().all()


@pytest.mark.parametrize("length", [1e30, 1e-9])
def test_long_and_short_vectors_have_a_direction(length):
    a = (torch.tensor([[3.0, 4.0, 0.0]]) * length).requires_grad_()
    torch.testing.assert_close(l2_normalize(a), torch.tensor([[0.6, 0.8, 0.0]]))
    l2_normalize(a)[0, 2].backward()
    torch.testing.assert_close(a.grad * length, torch.tensor([[0.0, 0.0, 0.2]]))


def test_duplicates_have_distance_zero_and_a_finite_gradient():
    a = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], requires_grad=True)
    table = euclidean(a, a)
    torch.testing.assert_close(table[:2, :2], torch.zeros(2, 2))
    table.sum().backward()
    assert a.grad is not None
    assert a.grad.isfinite().all()


def test_half_precision_is_widened():
    a = torch.randn(4, 8, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cosine(a, a), cosine(a.float(), a.float()), rtol=0, atol=0)
    assert l2_normalize(a.double()).dtype == torch.float64


def test_a_learned_module_is_a_score_with_its_parameters():
    class Fusion(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.out = nn.Linear(6, 5), nn.Linear(5, 1)

        def forward(self, a, b):
            both = torch.cat([a[:, None].expand(-1, len(b), -1), b.expand(len(a), -1, -1)], 2)
            return self.out(self.mix(both).tanh())[..., 0]

    module = Fusion().double()
    score = build_learned_score(module, values_per_pair=5)
    a, b = _vectors()
    torch.testing.assert_close(score(a, b), module(a, b))
    assert [p.shape for p in score.parameters] == [p.shape for p in module.parameters()]
    torch.testing.assert_close(score.T(b, a), module(a, b).T)

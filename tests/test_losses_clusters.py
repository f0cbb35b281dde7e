"""Whitening, Sinkhorn codes, swapped prediction, pseudo-labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch.nn import functional as F

from nearfar.core import RandomKey, UsageError
from nearfar.losses.deepcluster import deepcluster
from nearfar.losses.swav import sinkhorn, swapped_prediction, swav
from nearfar.losses.w_mse import w_mse, whiten
from nearfar.scores import cosine

KEY = RandomKey(0)


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- whitening ------------------------------------------------------------------------------------


def test_whitened_rows_have_no_mean_and_unit_covariance():
    z = _randn(40, 5) @ _randn(5, 5, seed=1) + 3
    white = whiten(z, shrinkage=0)
    torch.testing.assert_close(white.mean(0), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(torch.cov(white.T), torch.eye(5, dtype=torch.float64))


def test_whitening_agrees_with_a_shrunken_cholesky_factor_in_numpy():
    z, eps = _randn(12, 4) @ _randn(4, 4, seed=1), 0.1
    x = z.numpy() - z.numpy().mean(0)
    factor = np.linalg.cholesky((1 - eps) * np.cov(x.T) + eps * np.eye(4))
    np.testing.assert_allclose(whiten(z, eps).numpy(), x @ np.linalg.inv(factor).T, rtol=1e-9)


def test_whitening_does_not_feel_scale_and_rotation_makes_no_distance():
    z = _randn(30, 4)
    torch.testing.assert_close(whiten(7 * z, 0), whiten(z, 0))
    a, b = whiten(z, 0), whiten(z @ _randn(4, 4, seed=1), 0)
    torch.testing.assert_close(torch.cdist(a, a), torch.cdist(b, b), msg="Mahalanobis distances are those of any invertible map")


def test_a_singular_covariance_is_shrunk_or_refused():
    """Eigenvalues of a covariance are not all positive: with no more rows than features some are 0."""
    z = _randn(4, 6)
    assert np.linalg.eigvalsh(np.cov(z.numpy().T)).min() < 1e-12
    with pytest.raises(UsageError, match="singular"):
        whiten(z, shrinkage=0)
    for rows in (z, torch.ones(5, 3), torch.zeros(5, 3), z.float() * 1e4):
        rows = rows.clone().requires_grad_()
        white = whiten(rows)
        assert white.isfinite().all()
        assert torch.autograd.grad(white.square().sum(), rows)[0].isfinite().all()
    with pytest.raises(UsageError, match="constant or linearly dependent"):
        whiten(torch.ones(9, 3), shrinkage=0)
    with pytest.raises(UsageError, match="at least 2 rows"):
        whiten(z[:1])
    with pytest.raises(UsageError, match="shrinkage"):
        whiten(z, shrinkage=-0.1)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_w_mse_whitens_each_view_in_sub_batches(distance):
    z0, z1, slots = _randn(12, 3), _randn(12, 3, seed=1), torch.arange(100, 112)
    found = w_mse(z0, z1, slots, KEY, subbatch_size=6, num_repeats=2, distance=distance)
    total = []
    for r in range(2):
        order = np.argsort(KEY("whiten", r).bits(slots.numpy())[:, 0].view(np.int64), kind="stable")
        for rows in (order[:6], order[6:]):
            for a, b in zip(whiten(z0[rows]), whiten(z1[rows]), strict=True):
                total.append(
                    float(((a - b) ** 2).sum() if distance == "euclidean" else ((F.normalize(a, dim=0) - F.normalize(b, dim=0)) ** 2).sum())
                )
    assert float(found) == pytest.approx(sum(total) / 24)
    z0, z1 = z0.requires_grad_(), z1.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: w_mse(a, b, slots, KEY, subbatch_size=6, distance=distance), (z0, z1), fast_mode=True)


def test_sub_batches_follow_slots_not_places():
    z0, z1, slots = _randn(12, 3), _randn(12, 3, seed=1), torch.arange(12)
    order = torch.tensor(KEY("any").permutation(12))
    loss = lambda a, b, s, rng_key=KEY: w_mse(a, b, s, rng_key, subbatch_size=4)
    torch.testing.assert_close(loss(z0[order], z1[order], slots[order]), loss(z0, z1, slots))
    assert loss(z0, z1, slots + 12) != loss(z0, z1, slots), "other draws at the next step"
    assert loss(z0, z1, slots, RandomKey(1)) != loss(z0, z1, slots)
    assert w_mse(z0, z1, slots, KEY, subbatch_size=100) == w_mse(z0, z1, slots, KEY), "fewer rows than a sub-batch: one of all"


def test_w_mse_pulls_views_together_without_collapse():
    """Descending plain MSE shrinks everything to a point; descending W-MSE aligns and keeps the spread."""
    slots = torch.arange(32)

    def train(loss) -> tuple[float, float]:
        shared = _randn(32, 4)
        w = _randn(6, 4, seed=5).requires_grad_()
        x0, x1 = (torch.cat([shared, _randn(32, 2, seed=s)], 1) for s in (1, 2))
        optimizer = torch.optim.Adam([w], 0.05)
        for _ in range(200):
            optimizer.zero_grad()
            loss(x0 @ w, x1 @ w).backward()
            optimizer.step()
        z = (x0 @ w).detach()
        return float(w_mse(z, (x1 @ w).detach(), slots, KEY)), float(z.std(0).min())

    apart, spread = train(lambda a, b: (a - b).square().sum(1).mean() + 0.01 * (a.square().sum(1) + b.square().sum(1)).mean())
    assert spread < 1e-2
    apart, spread = train(lambda a, b: w_mse(a, b, slots, KEY))
    assert apart < 0.02
    assert spread > 0.1


def test_w_mse_refuses_what_it_cannot_do():
    z, slots = _randn(4, 3), torch.arange(4)
    with pytest.raises(UsageError, match="size"):
        w_mse(z, z, slots, KEY, subbatch_size=1)
    with pytest.raises(UsageError, match="at least 2 rows"):
        w_mse(z[:1], z[:1], slots[:1], KEY)


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-3, 0.05, 1.0])
def test_codes_have_uniform_marginals(eps):
    codes = sinkhorn(_randn(60, 5), eps, iterations=5000 if eps < 0.01 else 500)
    torch.testing.assert_close(codes.sum(1), torch.ones(60, dtype=torch.float64))
    torch.testing.assert_close(codes.sum(0), torch.full((5,), 12.0, dtype=torch.float64), rtol=2e-2, atol=0)
    assert (codes >= 0).all()


def test_codes_agree_with_the_published_loop():
    """Rows and columns of exp(scores / eps) divided by their sums in turn, three times, as SwAV and lightly do it."""
    scores, eps = cosine(_randn(12, 4), _randn(3, 4, seed=1)), 0.05
    q = np.exp(scores.numpy() / eps).T
    q /= q.sum()
    for _ in range(3):
        q /= q.sum(1, keepdims=True) * 3
        q /= q.sum(0, keepdims=True) * 12
    np.testing.assert_allclose(sinkhorn(scores, eps).numpy(), (q * 12).T, rtol=1e-9)


def test_codes_solve_the_transport_problem():
    """Among assignments of equal shares theirs is the best, up to eps times the largest entropy; a solver knows the best one."""
    scores, eps = _randn(12, 3), 0.05
    copies = np.repeat(scores.numpy(), 4, axis=1)  # each prototype has room for four
    best = copies[linear_sum_assignment(copies, maximize=True)].sum()
    found = float((sinkhorn(scores, eps, iterations=2000) * scores).sum())
    assert best - eps * 12 * np.log(3) <= found <= best + 1e-6
    greedy = float(scores.amax(1).sum())
    assert greedy > best + 0.1, "without equal shares more could be had"


def test_codes_never_overflow():
    wild = torch.tensor([[1e4, -1e4], [1e4, -1e4], [0.0, 0.0]])
    assert sinkhorn(wild, 1e-3, 50).isfinite().all()
    assert sinkhorn(torch.zeros(1, 4)).tolist() == [[0.25] * 4]
    assert not sinkhorn(_randn(3, 2).requires_grad_()).requires_grad
    for wrong in ({"regularization": 0.0}, {"iterations": 0}):
        with pytest.raises(UsageError, match="sinkhorn"):
            sinkhorn(wild, **wrong)


def test_swapped_prediction_is_a_cross_entropy_with_soft_labels():
    scores, codes = _randn(5, 3), _randn(5, 3, seed=1).softmax(1)
    expected = F.cross_entropy(scores / 0.2, codes, reduction="none")
    torch.testing.assert_close(swapped_prediction(scores, codes, 0.2), expected)


@pytest.mark.parametrize("count", [2, 4])
def test_swav_predicts_the_codes_of_the_first_views_from_all_others(count):
    z, c = [_randn(6, 4, seed=s) for s in range(count)], _randn(3, 4, seed=9)
    scores = [cosine(v, c) for v in z]
    total = 0.0
    for s in range(2):
        codes = sinkhorn(scores[s])
        others = [t for t in range(count) if t != s]
        total += sum(float(-(codes * (scores[t] / 0.1).log_softmax(1)).sum(1).mean()) for t in others) / len(others)
    assert float(swav(z, c)) == pytest.approx(total / 2)
    order = torch.tensor([5, 2, 0, 1, 4, 3])
    torch.testing.assert_close(swav([v[order] for v in z], c), swav(z, c))


def test_swav_sends_no_gradient_through_codes():
    z0, z1, c = _randn(6, 4), _randn(6, 4, seed=1), _randn(3, 4, seed=2)
    a = z0.clone().requires_grad_()
    codes = sinkhorn(cosine(z1, c))
    (expected,) = torch.autograd.grad(swapped_prediction(cosine(a, c), codes).mean() / 2, a)
    torch.testing.assert_close(torch.autograd.grad(swav([a, z1], c), a)[0], expected)


def test_swav_has_no_negatives_and_keeps_clusters_equal():
    """Two instances of one cluster are not pushed apart; and with everything in one place codes still spread over all prototypes."""
    c = torch.eye(3, dtype=torch.float64)
    together = c.repeat_interleave(2, 0) * 1.0
    assert float(swav([together, together], c, temperature=0.05)) < 1e-3
    collapsed = torch.ones(6, 3, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(cosine(collapsed, c)), torch.full((6, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_swav_is_finite(tau):
    for z in (torch.zeros(4, 3), torch.ones(4, 3), _randn(1, 3).float()):
        a = z.clone().requires_grad_()
        loss = swav([a, a], torch.eye(3), temperature=tau)
        assert loss.isfinite()
        assert torch.autograd.grad(loss, a)[0].isfinite().all()
    with pytest.raises(UsageError, match="views"):
        swav([_randn(4, 3)], _randn(2, 3))
    with pytest.raises(UsageError, match="coded"):
        swav([_randn(4, 3), _randn(4, 3)], _randn(2, 3), num_coded_views=3)


# --- pseudo-labels --------------------------------------------------------------------------------


def test_deepcluster_weighs_clusters_equally():
    logits, assigned = _randn(6, 3), torch.tensor([0, 0, 0, 1, 2, -1])
    sizes = torch.tensor([300, 10, 90])
    per_row = [float(-logits[i].log_softmax(0)[a]) for i, a in enumerate(assigned.tolist()) if a >= 0]
    weights = [1 / int(sizes[a]) for a in assigned.tolist() if a >= 0]
    expected = sum(w * x for w, x in zip(weights, per_row, strict=True)) / sum(weights)
    assert float(deepcluster(logits, assigned, sizes)) == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda x: deepcluster(x, assigned, sizes), (logits.requires_grad_(),))


def test_deepcluster_does_not_reward_one_large_cluster():
    """Always answering "the large one" is cheap for plain cross-entropy and dear with the weights."""
    assigned = torch.tensor([0] * 98 + [1, 2])
    always = torch.tensor([[8.0, 0.0, 0.0]]).expand(100, 3)
    assert float(F.cross_entropy(always, assigned)) < 0.2
    assert float(deepcluster(always, assigned, torch.bincount(assigned))) > 5
    assert float(deepcluster(always[:2], torch.tensor([-1, -1]), torch.bincount(assigned))) == 0

"""The InfoNCE family against loops, its gradients' directions, its relations and its edges."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.losses import clip, debiased, hard_negative, info_nce, mil_nce, n_pair, nt_logistic, nt_xent, sigmoid, supcon
from nearfar.losses import soft_nearest_neighbors as soft_nearest_neighbours  # fmt: skip
from nearfar.scores import Scores, cosine, dot, squared_euclidean

ROW_LOSSES = {
    "info_nce": info_nce,
    "info_nce_in": mil_nce,
    "supcon": supcon,
    "sigmoid": sigmoid,
    "debiased": lambda S: debiased(S, false_negative_share=0.2),
    "hard_negative": lambda S: hard_negative(S, false_negative_share=0.2, hardness=0.7),
}


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _bounded(S: Scores) -> Scores:
    """The same scores, said to be cosines: debiased losses ask for the lowest possible one."""
    return replace(S, score=cosine)


def _mean_exp(s: list[float]) -> float:
    return math.fsum(math.exp(x) for x in s) / len(s)


def _row_oracle(name: str, pos: list[float], neg: list[float], lowest: float) -> float:
    """A row's loss from the equation in its docstring."""
    if name == "sigmoid":
        return -math.fsum(math.log(1 / (1 + math.exp(-s))) for s in pos) - math.fsum(math.log(1 - 1 / (1 + math.exp(-s))) for s in neg)
    if not pos:
        return 0.0
    everything = math.fsum(math.exp(s) for s in pos + neg)
    if name in ("info_nce", "supcon"):
        return -math.fsum(math.log(math.exp(s) / everything) for s in pos) / len(pos)
    if name == "info_nce_in":
        return -math.log(math.fsum(math.exp(s) for s in pos) / everything)
    if not neg:
        return 0.0
    eta, beta = 0.2, 0.7 if name == "hard_negative" else 0.0
    hard = lambda s: math.fsum(math.exp((1 + beta) * x) for x in s) / math.fsum(math.exp(beta * x) for x in s)
    g = max((hard(neg) - eta * hard(pos)) / (1 - eta), math.exp(lowest))
    return -math.log(_mean_exp(pos) / (_mean_exp(pos) + len(neg) * g))


@st.composite
def rows(draw):
    n, p, k = draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.integers(0, 4))
    tau = draw(st.sampled_from([0.05, 0.3, 1.0, 10.0]))
    score = st.floats(-1, 1, allow_nan=False, width=32)
    pos, neg = (torch.tensor(draw(st.lists(score, min_size=n * w, max_size=n * w)), dtype=torch.float64).view(n, w) for w in (p, k))
    return pos, neg, tau


@pytest.mark.parametrize("name", ROW_LOSSES)
@settings(max_examples=25, deadline=None)
@given(rows())
def test_every_row_loss_agrees_with_its_equation(name, case):
    pos, neg, tau = case
    S = _bounded(Scores.from_lists(pos, neg)) / tau
    expected = [_row_oracle(name, (p / tau).tolist(), (k / tau).tolist(), -1 / tau) for p, k in zip(pos, neg, strict=True)]
    torch.testing.assert_close(ROW_LOSSES[name](S), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_the_gradient_raises_the_positive_and_lowers_the_negatives(name):
    pos, neg = (_randn(30, 1).tanh().requires_grad_(), _randn(30, 5, seed=1).tanh().requires_grad_())
    ROW_LOSSES[name](_bounded(Scores.from_lists(pos, neg)) / 0.5).sum().backward()
    assert pos.grad is not None
    assert neg.grad is not None
    assert (pos.grad <= 0).all()
    assert (pos.grad < 0).any()
    if name == "hard_negative":  # its weights move too: an easy negative that comes nearer takes weight from a hard one
        hardest = neg.argmax(1, keepdim=True)
        assert (neg.grad.gather(1, hardest) >= 0).all()
        assert (neg.grad.sum(1) >= 0).all()
    else:
        assert (neg.grad >= 0).all()


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize("block", [None, 2])
def test_gradcheck(name, block):
    a, b = _randn(4, 3).requires_grad_(), _randn(4, 3, seed=1).requires_grad_()
    tau = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    tables = [
        lambda a, b: Scores.from_pairs(a, b),
        lambda a, b: Scores.from_views(a, b),
        lambda a, b: Scores.from_matched(a, b, negatives=_randn(5, 3, seed=2)),
    ]
    losses = lambda a, b, t: tuple(ROW_LOSSES[name](replace(table(a, b) / t, rows_per_block=block)) for table in tables)
    assert torch.autograd.gradcheck(losses, (a, b, tau), fast_mode=True)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_the_order_of_rows_does_not_matter(name):
    z, y = _randn(9, 4), torch.tensor([0, 1, 2, 0, 1, 2, 2, 3, 0])
    order = torch.tensor([3, 8, 1, 0, 6, 7, 2, 5, 4])
    loss = ROW_LOSSES[name]
    torch.testing.assert_close(loss(Scores.from_labels(z, y) / 0.3)[order], loss(Scores.from_labels(z[order], y[order]) / 0.3))


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_the_block_size_does_not_matter(name):
    z, y = _randn(9, 4), torch.arange(9) % 4
    found = []
    for block in (None, 1, 4, 9, 50):
        x = z.clone().requires_grad_()
        values = ROW_LOSSES[name](replace(Scores.from_labels(x, y) / 0.3, rows_per_block=block))
        found.append((values.detach(), *torch.autograd.grad(values.square().sum(), x)))
    for other in found:
        torch.testing.assert_close(other, found[0])


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize("tau", [1e-3, 1e-2, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_no_nan_for_zero_rows_duplicates_and_lonely_rows(name, tau, dtype):
    base = _randn(6, 4).to(dtype)
    base[1] = 0
    base[3] = base[2]
    base[5] = -base[4]
    y = torch.tensor([0, 0, 1, 1, -1, 2])
    tables = [
        lambda z: Scores.from_labels(z, y),
        Scores.from_views,
        lambda z: Scores.from_views(z, z.flip(1)),
        lambda z: Scores.from_pairs(z, z),
        lambda z: Scores.from_views(z[:1], z[:1]),
    ]
    for table in tables:
        z = base.clone().requires_grad_()
        values = ROW_LOSSES[name](table(z) / tau)
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert values.isfinite().all()
        values.sum().backward()
        assert z.grad is not None
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("loss", [info_nce, mil_nce, supcon, ROW_LOSSES["debiased"], ROW_LOSSES["hard_negative"]])
def test_a_row_without_positives_says_nothing(loss):
    z = _randn(5, 3).requires_grad_()
    values = loss(Scores.from_labels(z, torch.tensor([0, 0, 1, 2, -1])) / 0.5)
    assert values[2:].tolist() == [0, 0, 0]
    assert (values[:2] > 0).all()
    (gradient,) = torch.autograd.grad(values[2:].sum(), z)
    assert not gradient.any()


@pytest.mark.parametrize("loss", [info_nce, mil_nce, ROW_LOSSES["debiased"], ROW_LOSSES["hard_negative"]])
def test_one_positive_and_no_negatives_cost_nothing(loss):
    z0, z1 = _randn(1, 3).requires_grad_(), _randn(1, 3, seed=1).requires_grad_()
    for table in (Scores.from_pairs(z0, z1), Scores.from_views(z0, z1)):
        values = loss(table / 0.1)
        assert values.abs().max() < 1e-12
        assert not torch.autograd.grad(values.sum(), z0)[0].any()


def test_the_two_readings_of_several_positives():
    one = _bounded(Scores.from_lists(_randn(6, 1), _randn(6, 4, seed=1)))
    torch.testing.assert_close(info_nce(one), mil_nce(one))
    several = Scores.from_lists(_randn(6, 3), _randn(6, 4, seed=1))
    assert (mil_nce(several) < info_nce(several)).all()
    assert (mil_nce(several) + math.log(3) <= info_nce(several)).all(), "Jensen: L_in <= L_out"
    assert (mil_nce(Scores.from_lists(_randn(6, 3), _randn(6, 0)))).abs().max() < 1e-12


def test_nt_xent_is_cross_entropy_among_all_views():
    z0, z1 = _randn(6, 4), _randn(6, 4, seed=1)
    z = F.normalize(torch.cat([z0, z1]), dim=1)
    logits = (z @ z.T / 0.2).fill_diagonal_(-math.inf)
    torch.testing.assert_close(nt_xent(z0, z1, 0.2), F.cross_entropy(logits, torch.cat([torch.arange(6, 12), torch.arange(6)])))


def test_clip_is_cross_entropy_both_ways_with_a_learned_scale():
    a, b, t = (
        _randn(6, 4).requires_grad_(),
        _randn(6, 4, seed=1).requires_grad_(),
        torch.tensor(1.2, dtype=torch.float64, requires_grad=True),
    )
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T * t.exp()
    expected = (F.cross_entropy(logits, torch.arange(6)) + F.cross_entropy(logits.T, torch.arange(6))) / 2
    found = clip(a, b, t.exp())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, (a, b, t)) for x in (found, expected)))
    S = Scores.from_pairs(a, b) * t.exp()
    torch.testing.assert_close(found, (info_nce(S).mean() + info_nce(S.T).mean()) / 2)


def test_moco_is_info_nce_against_a_queue():
    q, k, queue = (F.normalize(x, dim=1) for x in (_randn(5, 4), _randn(5, 4, seed=1), _randn(9, 4, seed=2)))
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
    expected = F.cross_entropy(logits, torch.zeros(5, dtype=torch.long))
    torch.testing.assert_close(info_nce(Scores.from_matched(q, k, negatives=queue, score=dot) / 0.07).mean(), expected)


def test_n_pair_has_one_positive_and_the_others_as_negatives():
    a, b = _randn(5, 3), _randn(5, 3, seed=1)
    terms = [math.log(1 + sum(math.exp(float(a[i] @ b[j] - a[i] @ b[i])) for j in range(5) if j != i)) for i in range(5)]
    assert float(n_pair(a, b)) == pytest.approx(sum(terms) / 5)


def test_sigmoid_is_binary_cross_entropy_of_the_table():
    a, b = _randn(5, 3), _randn(5, 3, seed=1)
    S = Scores.from_pairs(a, b) * 10 + (-10)
    expected = F.binary_cross_entropy_with_logits(S.to_dense(), torch.eye(5, dtype=torch.float64), reduction="none").sum(1)
    torch.testing.assert_close(sigmoid(S), expected)
    torch.testing.assert_close(nt_logistic(a, b, 0.3), sigmoid(Scores.from_views(a, b) / 0.3).mean())


def test_soft_nearest_neighbours_by_loops():
    z, y, tau = _randn(7, 3), [0, 1, 0, 2, 1, 0, -1], 1.3
    total = 0.0
    for i in range(7):
        near = {j: math.exp(-float((z[i] - z[j]).square().sum()) / tau) for j in range(7) if j != i}
        alike = [near[j] for j in near if y[j] == y[i] != -1]
        total -= math.log(sum(alike) / sum(near.values())) if alike else 0.0
    assert float(soft_nearest_neighbours(z, torch.tensor(y), tau)) == pytest.approx(total / 7)


def test_hard_negative_contains_debiased_which_contains_info_nce():
    S = Scores.from_views(_randn(6, 4), _randn(6, 4, seed=1)) / 0.5
    torch.testing.assert_close(hard_negative(S, false_negative_share=0.1, hardness=0), debiased(S, false_negative_share=0.1))
    torch.testing.assert_close(debiased(S, false_negative_share=0), info_nce(S))
    assert (hard_negative(S, false_negative_share=0, hardness=2) > info_nce(S)).all(), "harder negatives weigh more"
    assert (debiased(S, false_negative_share=0.1) != info_nce(S)).any()


def test_debiased_losses_refuse_what_they_cannot_use():
    a, b = _randn(3, 2), _randn(3, 2, seed=1)
    with pytest.raises(UsageError, match="bounded from below"):
        debiased(Scores.from_pairs(a, b, score=squared_euclidean))
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        debiased(Scores.from_pairs(a, b), false_negative_share=1.0)
    with pytest.raises(UsageError, match="hardness must not be negative"):
        hard_negative(Scores.from_pairs(a, b), hardness=-1.0)


def test_info_nce_bounds_the_mutual_information_of_gaussians():
    """I(x; y) = -log(1 - r²)/2 for each of d correlated pairs; with the true log-density ratio, log n - L stays below and near."""
    g = torch.Generator().manual_seed(0)
    n, d, r = 2000, 2, 0.8
    x, e = (torch.randn(n, d, generator=g, dtype=torch.float64) for _ in range(2))
    y = r * x + math.sqrt(1 - r * r) * e
    ratio = lambda a, b: ((2 * r * a[:, None] * b - r * r * (a[:, None] ** 2 + b**2)) / (2 * (1 - r * r))).sum(2)
    bound = math.log(n) - float(info_nce(Scores.from_pairs(x, y, score=ratio)).mean())
    truth = -0.5 * d * math.log(1 - r * r)
    assert truth - 0.1 < bound < truth + 0.05

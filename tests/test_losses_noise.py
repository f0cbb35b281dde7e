"""Noise-contrastive losses and their relatives: loops, known answers, directions, printed errors, edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.losses import info_nce, mil_nce, n_pair, sigmoid
from nearfar.losses.cpc import cpc
from nearfar.losses.crd import crd
from nearfar.losses.dpr import dpr
from nearfar.losses.instance_nce import estimate_log_partition, instance_nce
from nearfar.losses.local_aggregation import local_aggregation
from nearfar.losses.nce import binary_nce, build_log_ratio_scores, logistic_pair, nce, negative_sampling, ranking_nce
from nearfar.losses.penalty import norm_penalty, proximal_penalty
from nearfar.losses.proto_nce import estimate_concentrations, proto_nce
from nearfar.losses.quick_thought import quick_thought
from nearfar.losses.simcse import simcse, simcse_supervised
from nearfar.losses.softmax import build_class_scores, cross_entropy, instance_softmax, parametric_softmax
from nearfar.scores import Scores, dot, l2_normalize

TAUS = [1e-3, 0.05, 1.0, 10.0]


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softmax_loss(scores: list[float], positive: int) -> float:
    return math.log(math.fsum(math.exp(s) for s in scores)) - scores[positive]


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def _cos(a: torch.Tensor, b: torch.Tensor) -> float:
    return _dot(a, b) / math.sqrt(_dot(a, a) * _dot(b, b))


def _assert_close(found: torch.Tensor, expected: float | list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), rtol=1e-8, atol=1e-10)


# --- noise-contrastive estimation -----------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1, 3])
def test_nce_is_a_posterior_with_the_noise_counted(ratio):
    data, noise = _randn(4), _randn(4 * ratio, seed=1)
    odds = lambda log_ratio: math.exp(log_ratio) / (math.exp(log_ratio) + ratio)
    expected = -math.fsum(math.log(odds(x)) for x in data.tolist()) / 4 - math.fsum(math.log(1 - odds(x)) for x in noise.tolist()) / 4
    _assert_close(nce(data, noise), expected)
    S = Scores.from_lists(data[:, None], noise.view(4, ratio))
    _assert_close(binary_nce(S, noise_ratio=ratio).mean(), expected)


@pytest.mark.parametrize("ratio", [1, 5])
def test_nce_finds_a_partition_function(ratio):
    """exp(-(x - mu)²/2 + c): c must become -log sqrt(2 pi). The printed form, without the factor m, is off by about log m."""
    draw = np.random.default_rng(0)
    n, mu, spread = 8000, 0.7, 2.0
    x, noise = torch.tensor(draw.normal(mu, 1, n)), torch.tensor(draw.normal(0, spread, n * ratio))
    log_q = lambda u: -u.square() / (2 * spread**2) - math.log(spread) - 0.5 * math.log(2 * math.pi)

    def fit(loss) -> torch.Tensor:
        theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([theta], max_iter=60, line_search_fn="strong_wolfe")
        log_ratio = lambda u: -(u - theta[0]).square() / 2 + theta[1] - log_q(u)

        def closure():
            optimizer.zero_grad()
            value = loss(log_ratio(x), log_ratio(noise))
            value.backward()
            return value

        optimizer.step(closure)
        return theta.detach()

    log_z = -0.5 * math.log(2 * math.pi)
    found = fit(nce)
    assert float(found[0]) == pytest.approx(mu, abs=0.05)
    assert float(found[1]) == pytest.approx(log_z, abs=0.05)
    if ratio > 1:
        printed = fit(lambda d, k: F.softplus(math.log(ratio) - d).mean() + F.softplus(k - math.log(ratio)).mean())
        assert abs(float(printed[1]) - log_z) > 0.5


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.5, 1.0, 7.0]), st.integers(0, 99))
def test_binary_nce_agrees_with_its_equation(n, p, k, m, seed):
    pos, neg = _randn(n, p, seed=seed), _randn(n, k, seed=seed + 100)
    expected = []
    for i in range(n):
        of_pos = [-math.log(_sigma(s - math.log(m))) for s in pos[i].tolist()]
        of_neg = [-math.log(1 - _sigma(s - math.log(m))) for s in neg[i].tolist()]
        expected.append((sum(of_pos) / p if p else 0.0) + (m * sum(of_neg) / k if k else 0.0))
    _assert_close(binary_nce(Scores.from_lists(pos, neg), m), expected)


def test_the_sign_printed_for_binary_nce_inverts_the_ranking():
    """p(D=1) = 1/(1 + e^S): descending that loss puts every positive below every negative."""
    start = _randn(6, 4)

    def train(loss) -> torch.Tensor:
        s = start.clone().requires_grad_()
        for _ in range(200):
            (grad,) = torch.autograd.grad(loss(s[:, :1], s[:, 1:]), s)
            s = (s - 0.2 * grad).detach().requires_grad_()
        return s.detach()

    printed = train(lambda p, k: -(1 / (1 + p.exp())).log().sum() - (1 - 1 / (1 + k.exp())).log().sum())
    ours = train(lambda p, k: binary_nce(Scores.from_lists(p, k), noise_ratio=3).sum())
    assert (printed[:, :1] < printed[:, 1:]).all()
    assert (ours[:, :1] > ours[:, 1:]).all()


def test_binary_nce_relations():
    pos, neg = _randn(5, 1), _randn(5, 6, seed=1)
    torch.testing.assert_close(binary_nce(Scores.from_lists(pos, neg), 6), sigmoid(Scores.from_lists(pos, neg) + -math.log(6)))
    torch.testing.assert_close(ranking_nce(Scores.from_lists(pos, neg)), info_nce(Scores.from_lists(pos, neg)))


def test_ranking_nce_divides_the_noise_out():
    """The posterior over which candidate is real, from products over all the *others*, as the equation has it."""
    log_p, log_q = _randn(4), _randn(4, seed=1)
    joint = [math.exp(float(log_p[i])) * math.prod(math.exp(float(log_q[j])) for j in range(4) if j != i) for i in range(4)]
    S = build_log_ratio_scores(log_p[None, :1], log_p[None, 1:], log_q[None, :1], log_q[None, 1:])
    _assert_close(ranking_nce(S), [-math.log(joint[0] / sum(joint))])


def test_log_ratios_make_a_conditional_model_learn_its_density():
    """A table of logits fitted by NCE with the noise's density known becomes log p(k | q) by itself, its constant included."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    m, s = 3, torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([s], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        S = build_log_ratio_scores(s[:, None], s[:, None], q.log()[:, None], q.log()[:, None])
        both = binary_nce(S, m)
        only_neg = binary_nce(replace(S, private_signs=torch.tensor([[0, -1]] * 4, dtype=torch.int8)), m)
        value = (p * (both - only_neg) + q * only_neg).sum()
        value.backward()
        return value

    optimizer.step(closure)
    torch.testing.assert_close(s.detach(), p.log(), atol=1e-4, rtol=0)


def test_negative_sampling():
    v, u, drawn = _randn(3, 4), _randn(3, 4, seed=1), _randn(3, 5, 4, seed=2)
    expected = [-math.log(_sigma(_dot(u[i], v[i]))) - sum(math.log(_sigma(-_dot(drawn[i, j], v[i]))) for j in range(5)) for i in range(3)]
    _assert_close(negative_sampling(v, u, drawn), expected)
    assert torch.autograd.gradcheck(negative_sampling, (v.requires_grad_(), u.requires_grad_(), drawn.requires_grad_()))


def test_logistic_is_binary_cross_entropy():
    s, y = _randn(8) * 3, torch.tensor([True, False] * 4)
    torch.testing.assert_close(logistic_pair(s, y), F.binary_cross_entropy_with_logits(s, y.double(), reduction="none"))
    assert logistic_pair(torch.tensor([1e4, -1e4]), torch.tensor([False, True])).tolist() == [1e4, 1e4]


# --- softmax over classes and instances -----------------------------------------------------------


def test_parametric_softmax_sums_over_classes():
    z, w, y = _randn(6, 3), _randn(4, 3, seed=1), torch.tensor([0, 3, -1, 2, 2, 1])
    known = F.cross_entropy(z @ w.T, y, ignore_index=-1, reduction="none")
    torch.testing.assert_close(parametric_softmax(z, w, y), known)
    torch.testing.assert_close(info_nce(replace(build_class_scores(z, w, y), rows_per_block=2)), known)
    assert torch.autograd.gradcheck(lambda z, w: parametric_softmax(z, w, y), (z.requires_grad_(), w.requires_grad_()))


def test_instance_softmax_is_exact():
    z, bank, ids = _randn(4, 3), _randn(9, 3, seed=1), torch.tensor([8, 0, 5, 5])
    expected = [_softmax_loss([_cos(z[i], bank[j]) / 0.2 for j in range(9)], int(ids[i])) for i in range(4)]
    _assert_close(instance_softmax(z, bank, ids, 0.2), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing):
    logits, y = _randn(5, 3), torch.tensor([2, -1, 0, 1, -1])
    torch.testing.assert_close(cross_entropy(logits, y, smoothing), F.cross_entropy(logits, y, ignore_index=-1, label_smoothing=smoothing))
    unknown = torch.full((5,), -1)
    assert float(cross_entropy(logits, unknown, smoothing)) == 0
    with pytest.raises(UsageError, match="labels must lie in 0 … 2"):
        cross_entropy(logits, torch.tensor([0, 1, 2, 3, 0]))
    with pytest.raises(UsageError, match="smoothing"):
        cross_entropy(logits, y, 1.5)


def test_instance_nce_is_the_ratio_of_the_paper():
    """h = P / (P + m / N) with P = exp(v_i·f / tau) / Z: v_i is remembered, f is the network's."""
    f, bank, ids, drawn, tau, z, m = _randn(3, 4), _randn(10, 4, seed=1), [2, 7, 0], [4, 4, 9, 1, 3], 0.3, 17.0, 5
    h = lambda i, j: (math.exp(_cos(bank[j], f[i]) / tau) / z) / (math.exp(_cos(bank[j], f[i]) / tau) / z + m / 10)
    expected = [-math.log(h(i, ids[i])) - m * sum(math.log(1 - h(i, j)) for j in drawn) / len(drawn) for i in range(3)]
    S = Scores.from_matched(f, bank[ids], negatives=bank[drawn]) / tau
    _assert_close(instance_nce(S, num_samples=10, noise_ratio=m, log_partition=math.log(z)), expected)
    _assert_close(instance_nce(S, num_samples=10, noise_ratio=m, log_partition=torch.tensor(math.log(z), dtype=torch.float64)), expected)
    with pytest.raises(UsageError, match="num_samples"):
        instance_nce(S, num_samples=0, noise_ratio=m, log_partition=0.0)


def test_the_partition_function_of_a_whole_bank_is_exact():
    f, bank, tau = _randn(3, 4), _randn(10, 4, seed=1), 0.3
    S = Scores.from_matched(f, f, negatives=bank) / tau
    exact = (l2_normalize(f) @ l2_normalize(bank).T / tau).exp().sum(1).mean().log()
    torch.testing.assert_close(estimate_log_partition(S, 10), exact)
    twice = Scores.from_matched(f, f, negatives=torch.cat([bank, bank])) / tau
    torch.testing.assert_close(estimate_log_partition(twice, 10), exact, msg="an average, not a sum")
    empty = Scores.from_matched(f, f, negatives=bank[:0]) / tau
    assert float(estimate_log_partition(empty, 10)) == pytest.approx(math.log(10))


def test_norm_and_proximal_penalties_are_not_the_same():
    z, before = (3 * _randn(4, 3)).requires_grad_(), 3 * _randn(4, 3, seed=1)
    _assert_close(norm_penalty(z).detach(), [_dot(r, r) for r in z.detach()])
    _assert_close(proximal_penalty(z, before).detach(), [_dot(r, r) for r in (z.detach() - before)])
    assert proximal_penalty(z, z).sum() == 0, "a vector that did not move costs nothing however long it is"
    assert norm_penalty(z).sum() > 0
    before.requires_grad_()
    proximal_penalty(z, before).sum().backward()
    assert before.grad is None


def test_the_norm_penalty_bounds_the_length_of_n_pair_vectors():
    """Without it vectors grow for ever, since longer ones separate better; with it their length settles."""

    def lengths(lam: float) -> list[float]:
        a, b = _randn(6, 3).requires_grad_(), _randn(6, 3, seed=1).requires_grad_()
        optimizer, found = torch.optim.Adam([a, b], 0.1), []
        for step in range(400):
            if step % 200 == 199:
                found.append(float(a.detach().norm(dim=1).mean()))
            optimizer.zero_grad()
            (n_pair(a, b) + lam * (norm_penalty(a) + norm_penalty(b)).mean()).backward()
            optimizer.step()
        return found

    free, held = lengths(0.0), lengths(0.02)
    assert free[1] > 1.03 * free[0]
    assert held[1] == pytest.approx(held[0], rel=0.005)


# --- sentences, passages, students ----------------------------------------------------------------


def test_simcse_and_its_supervised_form():
    h, p, k, tau = _randn(4, 3), _randn(4, 3, seed=1), _randn(4, 3, seed=2), 0.2
    expected = [_softmax_loss([_cos(h[i], p[j]) / tau for j in range(4)], i) for i in range(4)]
    _assert_close(simcse(h, p, tau), sum(expected) / 4)
    for alpha in (1.0, 3.0):
        rows = []
        for i in range(4):
            near = [math.exp(_cos(h[i], p[j]) / tau) for j in range(4)]
            hard = [alpha ** (i == j) * math.exp(_cos(h[i], k[j]) / tau) for j in range(4)]
            rows.append(-math.log(near[i] / (sum(near) + sum(hard))))
        _assert_close(simcse_supervised(h, p, k, tau, alpha), sum(rows) / 4)
    torch.testing.assert_close(simcse_supervised(h, p, k, tau), info_nce(Scores.from_pairs(h, torch.cat([p, k])) / tau).mean())
    with pytest.raises(UsageError, match="hard_negative_weight"):
        simcse_supervised(h, p, k, tau, 0.0)


def test_supervised_simcse_keeps_the_hard_negatives_of_others():
    """With alpha times the indicator the negatives of the others get no gradient; with alpha to its power they do."""
    h, p, k, tau, alpha = _randn(4, 3), _randn(4, 3, seed=1), _randn(4, 3, seed=2).requires_grad_(), 0.5, 2.0
    near, hard = (cos_table(h, p) / tau).exp(), (cos_table(h, k) / tau).exp()
    printed = -(near[0, 0] / (near[0].sum() + (alpha * torch.eye(4)[0] * hard[0]).sum())).log()
    assert not torch.autograd.grad(printed, k, retain_graph=True)[0][1:].any()
    grads = torch.autograd.grad(simcse_supervised(h[:1], p[:1], k[:1], tau, alpha), k)[0]
    assert not grads[1:].any(), "alone in its batch a row has no other's negatives"
    grads = torch.autograd.grad(simcse_supervised(h, p, k, tau, alpha), k)[0]
    own_only = torch.autograd.grad(-((near.diagonal() / (near.sum(1) + alpha * hard.diagonal())).log().mean()), k, retain_graph=True)[0]
    assert ((grads - own_only).abs().sum(1) > 1e-3).all()


def cos_table(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def test_simcse_is_multiple_negatives_ranking():
    """The formula of sentence-transformers: cross-entropy of 20 cos over positives, then hard negatives."""
    h, p, k = _randn(6, 4), _randn(6, 4, seed=1), _randn(6, 4, seed=2)
    reference = F.cross_entropy(20 * cos_table(h, torch.cat([p, k])), torch.arange(6))
    torch.testing.assert_close(simcse_supervised(h, p, k, 1 / 20), reference)


def test_dpr_has_dot_products_two_encoders_and_no_temperature():
    q, p, mined = _randn(3, 4), _randn(3, 4, seed=1), _randn(5, 4, seed=2)
    candidates = torch.cat([p, mined])
    _assert_close(dpr(q, p, mined), sum(_softmax_loss([_dot(q[i], c) for c in candidates], i) for i in range(3)) / 3)
    torch.testing.assert_close(dpr(q, p), n_pair(q, p))
    assert abs(float(dpr(3 * q, p) - dpr(q, p))) > 0.1, "lengths matter, unlike for cosines"


def test_quick_thought():
    f, g, passage = _randn(7, 3), _randn(7, 3, seed=1), torch.tensor([0, 0, 0, 1, 1, 2, 3])
    for window in (1, 2):
        expected = []
        for i in range(7):
            scores = {j: _dot(f[i], g[j]) for j in range(7) if j != i}
            log_z = math.log(sum(math.exp(s) for s in scores.values()))
            near = [j for j in scores if abs(i - j) <= window and passage[i] == passage[j]]
            expected.append(sum(log_z - scores[j] for j in near))
        _assert_close(quick_thought(f, g, passage, window), expected)
    assert quick_thought(f, g, passage)[5:].tolist() == [0, 0], "alone in its passage"
    assert quick_thought(f[:1], g[:1], passage[:1]).tolist() == [0]
    assert torch.autograd.gradcheck(lambda f, g: quick_thought(f, g, passage), (f.requires_grad_(), g.requires_grad_()))


def test_quick_thought_without_the_logarithm_stops_where_it_is_needed_most():
    s = torch.tensor([[-20.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    (printed,) = torch.autograd.grad(-s.softmax(1)[:, 0].sum(), s)
    (ours,) = torch.autograd.grad(info_nce(Scores.from_lists(s[:, :1], s[:, 1:])).sum(), s)
    assert printed[0, 0].abs() < 1e-8
    assert ours[0, 0] < -0.99


def test_crd():
    s, t, bank, total, tau = _randn(3, 4), _randn(3, 4, seed=1), _randn(6, 4, seed=2), 50, 0.3
    h = lambda a, b: math.exp(_cos(a, b) / tau) / (math.exp(_cos(a, b) / tau) + 6 / total)
    expected = [-math.log(h(t[i], s[i])) - sum(math.log(1 - h(b, s[i])) for b in bank) for i in range(3)]
    _assert_close(crd(s, t, bank, total, tau), expected)
    torch.testing.assert_close(
        crd(s, t, bank, total, tau),
        instance_nce(Scores.from_matched(s, t, negatives=bank) / tau, num_samples=total, noise_ratio=6, log_partition=0.0),
    )
    with pytest.raises(UsageError, match="`negatives` must not be empty"):
        crd(s, t, bank[:0], total)


def test_cpc_scores_the_future_by_a_matrix_for_each_step():
    c, z, w = _randn(5, 3), _randn(2, 5, 4, seed=1), _randn(2, 4, 3, seed=2)
    expected = []
    for k in range(2):
        f = [[float(z[k, j] @ w[k] @ c[t]) for j in range(5)] for t in range(5)]
        expected.append(sum(_softmax_loss(f[t], t) for t in range(5)) / 5)
    _assert_close(cpc(c, z, w), expected)
    assert torch.autograd.gradcheck(cpc, (c.requires_grad_(), z.requires_grad_(), w.requires_grad_()))


# --- neighbors and prototypes --------------------------------------------------------------------


def test_local_aggregation():
    v, bank, tau = _randn(3, 4), _randn(3, 6, 4, seed=1), 0.3
    close = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    p = [[math.exp(_cos(v[i], bank[i, j]) / tau) for j in range(6)] for i in range(3)]
    _assert_close(local_aggregation(v, bank, close, tau), [-math.log(sum(p[0][:2]) / sum(p[0])), 0.0, 0.0])
    assert torch.autograd.gradcheck(
        lambda v, b: local_aggregation(v, b, close, tau), (v.requires_grad_(), bank.requires_grad_()), fast_mode=True
    )


def test_local_aggregation_of_itself_is_instance_discrimination():
    v, bank, ids = _randn(3, 4), _randn(8, 4, seed=1), torch.tensor([5, 0, 3])
    close = F.one_hot(ids, 8).bool()
    torch.testing.assert_close(local_aggregation(v, bank.expand(3, 8, 4), close, 0.2), instance_softmax(v, bank, ids, 0.2))


def test_proto_nce():
    v, k, queue, tau = _randn(4, 3), _randn(4, 3, seed=1), _randn(6, 3, seed=2), 0.2
    S = Scores.from_matched(v, k, negatives=queue) / tau
    coarse = (_randn(2, 3, seed=3), torch.tensor([0.1, 0.4], dtype=torch.float64), torch.tensor([0, 1, 1, 0]))
    fine = (_randn(3, 3, seed=4), torch.tensor([0.2, 0.3, 0.1], dtype=torch.float64), torch.tensor([2, 1, 0, 0]))
    expected = []
    for i in range(4):
        own = _softmax_loss([_cos(v[i], k[i]) / tau] + [_cos(v[i], q) / tau for q in queue], 0)
        of = [_softmax_loss([_cos(v[i], c) / float(f) for c, f in zip(cs, phi, strict=True)], int(at[i])) for cs, phi, at in (coarse, fine)]
        expected.append(own + sum(of) / 2)
    _assert_close(proto_nce(S, v, [coarse, fine]), expected)
    with pytest.raises(UsageError, match="clustering"):
        proto_nce(S, v, [])


def test_proto_nce_sends_no_gradient_to_prototypes():
    v, prototypes = _randn(4, 3).requires_grad_(), _randn(3, 3, seed=4).requires_grad_()
    clustering = (prototypes, torch.tensor([0.2, 0.3, 0.1], dtype=torch.float64), torch.tensor([2, 1, 0, 0]))
    proto_nce(Scores.from_pairs(v, _randn(4, 3, seed=1)), v, [clustering]).sum().backward()
    assert prototypes.grad is None
    assert v.grad is not None
    assert v.grad.abs().sum() > 0


def test_concentration_agrees_with_a_loop():
    z, c = _randn(40, 3), _randn(6, 3, seed=1)
    at = torch.cdist(z, c).argmin(1)
    at[at == 5] = 4
    at[0] = 5
    raw = np.zeros(6)
    for j in range(6):
        distances = [float((z[i] - c[j]).norm()) for i in range(40) if at[i] == j]
        raw[j] = np.mean(distances) / np.log(len(distances) + 10) if len(distances) > 1 else 0
    raw[raw == 0] = raw.max()
    raw = raw.clip(np.percentile(raw, 10), np.percentile(raw, 90))
    torch.testing.assert_close(estimate_concentrations(z, c, at, temperature=0.2), torch.tensor(0.2 * raw / raw.mean()))
    alone = estimate_concentrations(z[:2], z[:2], torch.tensor([0, 1]), temperature=0.2)
    assert alone.tolist() == [0.2, 0.2], "nothing to estimate from"
    assert (estimate_concentrations(torch.ones(9, 2), torch.ones(2, 2), torch.tensor([0] * 8 + [1]), 0.2) > 0).all()


# --- laws of all ----------------------------------------------------------------------------------

CLOSE = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [True, False, False]])
PHI = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
ROWS = {
    "binary_nce": lambda a, b, tau: binary_nce(Scores.from_pairs(a, b) / tau, noise_ratio=3),
    "instance_nce": lambda a, b, tau: instance_nce(Scores.from_matched(a, b, negatives=_randn(5, 3, seed=9).to(a)) / tau, 20, 5, 1.0),
    "crd": lambda a, b, tau: crd(a, b, _randn(5, 3, seed=9).to(a), 20, tau),
    "simcse": lambda a, b, tau: simcse(a, b, tau),
    "simcse_supervised": lambda a, b, tau: simcse_supervised(a, b, b.flip(0), tau, 2.0),
    "dpr": lambda a, b, tau: dpr(a / tau, b),
    "quick_thought": lambda a, b, tau: quick_thought(a / tau, b, torch.zeros(len(a), dtype=torch.long)),
    "local_aggregation": lambda a, b, tau: local_aggregation(a, b.expand(len(a), *b.shape)[:, :3], CLOSE[: len(a), : len(b)], tau),
    "proto_nce": lambda a, b, tau: proto_nce(
        Scores.from_pairs(a, b) / tau, a, [(_randn(3, 3, seed=8).to(a), PHI.to(a), torch.tensor([0, 1, 2, 0])[: len(a)])]
    ),
    "instance_softmax": lambda a, b, tau: instance_softmax(a, b, torch.arange(len(a)), tau),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("tau", TAUS)
def test_edges_are_finite(name, tau):
    """Zero rows, duplicate rows, a single row, small and large temperatures, single precision: value and gradient are finite."""
    ordinary, zero, equal = _randn(4, 3).float(), torch.zeros(4, 3), torch.ones(4, 3)
    for a, b in [(ordinary, ordinary.flip(0)), (zero, zero), (zero, equal), (equal, equal), (ordinary[:1], ordinary[1:2])]:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        loss = ROWS[name](a, b, tau)
        assert loss.isfinite().all()
        grads = torch.autograd.grad(loss.sum(), (a, b), allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in grads)


@pytest.mark.parametrize("name", ROWS)
def test_gradients(name):
    a, b = _randn(4, 3).requires_grad_(), _randn(4, 3, seed=1).requires_grad_()
    tau = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ROWS[name], (a, b, tau), fast_mode=True)


@pytest.mark.parametrize("name", ["binary_nce", "instance_nce", "crd", "simcse", "dpr", "instance_softmax"])
def test_a_positive_that_comes_nearer_lowers_the_loss_and_the_order_does_not_matter(name):
    a, b = _randn(4, 3), _randn(4, 3, seed=1)
    loss = lambda a, b: ROWS[name](a, b, 0.5).mean()
    order = torch.tensor([2, 0, 3, 1])
    if name != "instance_softmax":
        torch.testing.assert_close(loss(a[order], b[order]), loss(a, b))
    free = b.clone().requires_grad_()
    for _ in range(30):
        (grad,) = torch.autograd.grad(loss(a, free), free)
        free = (free - 0.3 * grad).detach().requires_grad_()
    nearer = (dot.score_pairs(l2_normalize(a), l2_normalize(free.detach())) - dot.score_pairs(l2_normalize(a), l2_normalize(b))).mean()
    assert nearer > 0.05


def test_bad_arguments_are_named():
    with pytest.raises(UsageError, match="noise_ratio, the number of noise"):
        binary_nce(Scores.from_lists(_randn(2, 1), _randn(2, 1)), 0)
    with pytest.raises(UsageError, match="must not be empty"):
        nce(_randn(3), _randn(0))


def test_labelled_rows_agree_with_the_form_of_pytorch_metric_learning():
    """Its NT-Xent takes every positive pair against the negatives alone: for one positive a row, the same as here."""
    z, y, tau = _randn(8, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]), 0.3
    s = cos_table(z, z) / tau
    alike = (y[:, None] == y) & ~torch.eye(8, dtype=torch.bool)
    terms = [s[i, j] - torch.logsumexp(torch.cat([s[i, j][None], s[i][y != y[i]]]), 0) for i, j in alike.nonzero().tolist()]
    torch.testing.assert_close(mil_nce(Scores.from_labels(z, y) / tau).mean(), -torch.stack(terms).mean())

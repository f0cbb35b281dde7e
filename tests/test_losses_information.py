"""Bounds on mutual information: known answers for Gaussians, relations, edges; critics and other scores."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.losses import info_nce, uniformity
from nearfar.losses.amdim import amdim, local_global_info_nce
from nearfar.losses.mutual_information import (
    becker_hinton,
    dv_bound,
    info_nce_bound,
    interpolated_bound,
    jsd_bound,
    nwj_bound,
    tuba_bound,
)
from nearfar.losses.nce import binary_nce
from nearfar.scores import Score, Scores, bilinear, l2_normalize
from nearfar.scores.critics import ConcatCritic, CrossCritic, SeparableCritic, Temperature, manhattan, order_embedding, rbf, riesz

BOUNDS = {
    "jsd": jsd_bound,
    "dv": dv_bound,
    "tuba": lambda S: tuba_bound(S, 0.3),
    "nwj": nwj_bound,
    "info_nce": info_nce_bound,
    "interpolated": lambda S: interpolated_bound(S, 0.4, 0.3),
}


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _gaussians(n: int, information: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Score]:
    """Pairs of correlated normals, and the best critic there is: the logarithm of p(x, y) / p(x) p(y)."""
    rho = math.sqrt(1 - math.exp(-2 * information))
    x = _randn(n, 1, seed=seed)
    y = rho * x + math.sqrt(1 - rho**2) * _randn(n, 1, seed=seed + 1000)

    def log_ratio(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x, y = a, b.T
        return information - (rho**2 * (x**2 + y**2) - 2 * rho * x * y) / (2 * (1 - rho**2))

    return x, y, Score(log_ratio)


def _loop(name: str, s: torch.Tensor) -> float:
    """The bound of a square table whose diagonal is drawn together, from its equation."""
    n = len(s)
    pos = [float(s[i, i]) for i in range(n)]
    neg = [[float(s[i, j]) for j in range(n) if j != i] for i in range(n)]
    every = [x for row in neg for x in row]
    mean = lambda xs: math.fsum(xs) / len(xs)
    softplus = lambda t: math.log(1 + math.exp(t))
    match name:
        case "jsd":
            return mean([-softplus(-t) for t in pos]) - mean([softplus(t) for t in every])
        case "dv":
            return mean(pos) - math.log(mean([math.exp(t) for t in every]))
        case "tuba":
            return mean(pos) - mean([math.exp(t) for t in every]) / math.exp(0.3) - 0.3 + 1
        case "nwj":
            return mean(pos) - mean([math.exp(t) for t in every]) / math.e
        case "info_nce":
            return mean([math.log(n) + p - math.log(math.exp(p) + sum(map(math.exp, row))) for p, row in zip(pos, neg, strict=True)])
    alpha, q = 0.4, math.exp(0.3)
    a = lambda xs: alpha * mean([math.exp(t) for t in xs]) + (1 - alpha) * q
    joint = [p - math.log(a([p, *row[:k], *row[k + 1 :]])) for p, row in zip(pos, neg, strict=True) for k in range(n - 1)]
    marginal = [math.exp(t) / a(row) for row in neg for t in row]
    return 1 + mean(joint) - mean(marginal)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("block", [None, 2])
def test_bounds_agree_with_their_equations(name, block):
    a, b = _randn(5, 3), _randn(5, 3, seed=1)
    S = replace(Scores.from_pairs(a, b, score=bilinear(_randn(3, 3, seed=2))), rows_per_block=block)
    assert float(BOUNDS[name](S)) == pytest.approx(_loop(name, S.to_dense()), rel=1e-9)


@pytest.mark.parametrize("name", BOUNDS)
def test_gradients_order_and_direction(name):
    a, b = _randn(5, 3).requires_grad_(), _randn(5, 3, seed=1).requires_grad_()
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    of = lambda a, b, tau: BOUNDS[name](Scores.from_pairs(a, b) / tau)
    assert torch.autograd.gradcheck(of, (a, b, tau), fast_mode=True)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(of(a[order], b[order], tau), of(a, b, tau))
    pos, neg = _randn(6, 1).requires_grad_(), _randn(6, 3, seed=1).requires_grad_()
    up, down = torch.autograd.grad(BOUNDS[name](Scores.from_lists(pos, neg)), (pos, neg))
    assert (up > 0).all(), "larger is more information: scores of true pairs are raised"
    assert (down.sum(1) < 0).all()


@pytest.mark.parametrize("information", [0.5, 1.0])
def test_bounds_with_the_best_critic_find_the_information_of_gaussians(information):
    found = {name: [] for name in ("dv", "nwj", "info_nce", "interpolated")}
    for seed in range(4):
        x, y, log_ratio = _gaussians(1500, information, seed)
        S = Scores.from_pairs(x, y, score=log_ratio)
        found["dv"].append(dv_bound(S))
        found["nwj"].append(nwj_bound(S + 1.0))
        found["info_nce"].append(info_nce_bound(S))
        found["interpolated"].append(interpolated_bound(S, 0.5, 0.0))
    for name, values in found.items():
        assert float(torch.stack(values).mean()) == pytest.approx(information, abs=0.06), name


def test_a_wrong_critic_gives_less():
    x, y, log_ratio = _gaussians(1500, 1.0)
    S = Scores.from_pairs(x, y, score=log_ratio)
    for bound, shift in ((dv_bound, 0.0), (nwj_bound, 1.0), (info_nce_bound, 0.0), (jsd_bound, 0.0)):
        best = bound(S + shift)
        assert bound(S * 0.5 + shift) < best - 0.02
        assert bound(S * 2.0 + shift) < best - 0.02
    assert nwj_bound(S) < nwj_bound(S + 1.0) - 0.2, "its best critic is 1 + log-ratio"
    torch.testing.assert_close(dv_bound(S + 5.0), dv_bound(S), msg="a constant cancels")


def test_info_nce_saturates_at_log_k_and_alpha_lifts_it():
    x, y, log_ratio = _gaussians(4000, 4.0)
    batches = [Scores.from_pairs(a, b, score=log_ratio) for a, b in zip(x.split(8), y.split(8), strict=True)]
    mean = lambda bound: float(torch.stack([bound(S) for S in batches]).mean())
    plain = mean(info_nce_bound)
    assert plain <= math.log(8)
    assert plain > 0.8 * math.log(8)
    lifted = mean(lambda S: interpolated_bound(S, 0.05, 0.0))
    assert math.log(8) < lifted < 4.0 + 0.3
    assert mean(nwj_plus := lambda S: nwj_bound(S + 1.0)) == pytest.approx(4.0, abs=0.6)
    spread = lambda bound: float(torch.stack([bound(S) for S in batches]).std())
    assert spread(info_nce_bound) < 0.5 * spread(nwj_plus)


def test_the_continuum_ends_in_tuba_and_in_info_nce():
    S = Scores.from_pairs(_randn(6, 3), _randn(6, 3, seed=1)) / 0.3
    torch.testing.assert_close(interpolated_bound(S, 0, 0.7), tuba_bound(S, 0.7))
    torch.testing.assert_close(interpolated_bound(S, 0), nwj_bound(S))
    s = S.to_dense()
    swapped = [
        math.log(5) - float(torch.logsumexp(s[i][[k for k in range(6) if k != j]], 0) - s[i, i])
        for i in range(6)
        for j in range(6)
        if j != i
    ]
    assert float(interpolated_bound(S, 1)) == pytest.approx(sum(swapped) / 30)


def test_relations_of_bounds():
    S = Scores.from_pairs(_randn(6, 3), _randn(6, 3, seed=1)) / 0.3
    torch.testing.assert_close(jsd_bound(S), -binary_nce(S, noise_ratio=1).mean())
    torch.testing.assert_close(nwj_bound(S), tuba_bound(S, 1.0))
    log_mean = S.neg_lse.logsumexp(0) - math.log(30)
    torch.testing.assert_close(tuba_bound(S, log_mean), dv_bound(S))
    assert tuba_bound(S, log_mean + 0.5) < dv_bound(S)
    torch.testing.assert_close(info_nce_bound(S), math.log(6) - info_nce(S).mean())


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("tau", [1e-3, 0.07, 10.0])
def test_bounds_are_finite(name, tau):
    z, y = _randn(5, 3).float(), torch.tensor([0, 0, -1, 1, 2])
    zero, equal = torch.zeros(4, 3), torch.ones(4, 3)
    for a, table in [(z, lambda a: Scores.from_pairs(a, a)), (z, lambda a: Scores.from_pairs(a, a.flip(0))), (zero,
    Scores.from_views), (equal, lambda a: Scores.from_views(a, a)),
                     (z[:1], lambda a: Scores.from_pairs(a, a)), (z, lambda a: Scores.from_labels(a, y)), (z[:1], Scores.from_views),
                     (z, lambda a: Scores.from_labels(a, torch.zeros(5, dtype=torch.long)))]:  # fmt: skip
        a = a.clone().requires_grad_()
        value = BOUNDS[name](table(a) / tau)
        assert value.isfinite()
        assert torch.autograd.grad(value, a)[0].isfinite().all()


@pytest.mark.parametrize("name", BOUNDS)
def test_a_table_without_negatives_or_positives_says_nothing(name):
    assert float(BOUNDS[name](Scores.from_pairs(_randn(1, 3), _randn(1, 3, seed=1)))) == 0
    assert float(BOUNDS[name](Scores.from_views(_randn(4, 3)))) == 0
    with pytest.raises(UsageError, match="info_nce_weight"):
        interpolated_bound(Scores.from_pairs(_randn(2, 3), _randn(2, 3)), 1.5)


def test_becker_hinton_finds_the_information_about_a_common_signal():
    """a = s + n, b = s + n': the average has signal 1 and noise v/2, so I = ½ log(1 + 2/v)."""
    s, noise = _randn(200_000, 1), 0.5
    a, b = s + math.sqrt(noise) * _randn(200_000, 1, seed=1), s + math.sqrt(noise) * _randn(200_000, 1, seed=2)
    assert float(becker_hinton(a, b)) == pytest.approx(0.5 * math.log(1 + 2 / noise), abs=0.01)
    assert abs(float(becker_hinton(a, _randn(200_000, 1, seed=3)))) < 0.01
    assert becker_hinton(a, a).isfinite()
    assert float(becker_hinton(torch.ones(1, 2), torch.zeros(1, 2))) == 0
    assert torch.autograd.gradcheck(becker_hinton, (_randn(5, 2).requires_grad_(), _randn(5, 2, seed=1).requires_grad_()))


def test_a_learned_critic_approaches_the_information():
    """MINE in small: an MLP critic, Donsker-Varadhan, Gaussians of 1 nat. Nothing is known of the ratio in advance."""
    torch.manual_seed(0)
    critic = ConcatCritic(1, hidden_dim=24)
    optimizer = torch.optim.Adam(critic.parameters(), 5e-3)
    for step in range(250):
        x, y, _ = _gaussians(96, 1.0, seed=step)
        optimizer.zero_grad()
        (-dv_bound(Scores.from_pairs(x.float(), y.float(), score=critic.as_score()))).backward()
        optimizer.step()
    x, y, _ = _gaussians(800, 1.0, seed=7777)
    with torch.no_grad():
        found = float(dv_bound(Scores.from_pairs(x.float(), y.float(), score=critic.as_score())))
    assert 0.75 < found < 1.15


# --- several scales -------------------------------------------------------------------------------


def test_local_and_global_features():
    g, local, tau = _randn(3, 4), _randn(3, 5, 4, seed=1), 2.0
    expected = []
    for i in range(3):
        score = lambda j, p, i=i: float(g[i] @ local[j, p]) / tau
        wrong = sum(math.exp(score(j, p)) for j in range(3) for p in range(5) if j != i)
        expected.append(sum(-math.log(math.exp(score(i, p)) / (math.exp(score(i, p)) + wrong)) for p in range(5)) / 5)
    torch.testing.assert_close(local_global_info_nce(g, local, tau), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(
        local_global_info_nce(g, local[:, :1]),
        info_nce(Scores.from_pairs(g, local[:, 0], score=bilinear(torch.eye(4, dtype=torch.float64)))),
    )
    torch.testing.assert_close(
        amdim(g, local, local[:, :2]), local_global_info_nce(g, local).mean() + local_global_info_nce(g, local[:, :2]).mean()
    )
    alone = g[:1].clone().requires_grad_()
    loss = local_global_info_nce(alone, local[:1])
    assert float(loss.detach()) == 0
    assert not torch.autograd.grad(loss.sum(), alone)[0].any()
    assert torch.autograd.gradcheck(amdim, (g.requires_grad_(), local.requires_grad_()))


# --- scores ---------------------------------------------------------------------------------------

FORMULAS = {
    "manhattan": (manhattan, lambda a, b: -sum(abs(x - y) for x, y in zip(a, b, strict=True))),
    "rbf": (rbf(0.7), lambda a, b: math.exp(-0.7 * sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))),
    "riesz": (riesz(1.5, 0.1), lambda a, b: (sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) + 0.01) ** -0.75),
    "order": (order_embedding(3), lambda a, b: -sum(max(0.0, y - x) ** 2 for x, y in zip(a, b, strict=True))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_scores_agree_with_their_formulas(name):
    score, formula = FORMULAS[name]
    a, b = _randn(4, 3), _randn(5, 3, seed=1)
    expected = torch.tensor([[formula(x.tolist(), y.tolist()) for y in b] for x in a], dtype=torch.float64)
    torch.testing.assert_close(score(a, b), expected)
    torch.testing.assert_close(score.score_pairs(a, b[:4]), expected.diagonal())
    torch.testing.assert_close(score.T(b, a), expected.T)
    torch.testing.assert_close(
        Scores.from_pairs(a, b, score=score).neg_sum, replace(Scores.from_pairs(a, b, score=score), rows_per_block=2).neg_sum
    )
    assert torch.autograd.gradcheck(score, (a.requires_grad_(), b.requires_grad_()))
    same = torch.ones(3, 3, requires_grad=True)
    value = score(same, same)
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), same)[0].isfinite().all()
    assert (score.symmetric, name) in ((True, name), (False, "order"))


def test_an_order_tells_the_general_from_the_particular():
    dog, animal = torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 2.0]])
    assert float(order_embedding(2)(dog, animal)) == 0
    assert float(order_embedding(2)(animal, dog)) == -4


def test_uniformity_is_the_logarithm_of_the_mean_gaussian_potential():
    z = _randn(7, 3)
    S = Scores.from_views(l2_normalize(z), score=rbf(2.0))
    torch.testing.assert_close((S.neg_sum.sum() / 42).log(), uniformity(z, 2.0))


def test_points_of_least_riesz_energy_are_spread_evenly():
    """Four repelling points on a sphere become a tetrahedron: all angles have cosine -1/3."""
    z = _randn(4, 3).requires_grad_()
    optimizer = torch.optim.Adam([z], 0.05)
    for _ in range(250):
        optimizer.zero_grad()
        Scores.from_views(l2_normalize(z), score=riesz(1.0)).neg_sum.mean().backward()
        optimizer.step()
    cosines = (l2_normalize(z) @ l2_normalize(z).T).detach()[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(cosines, torch.full_like(cosines, -1 / 3), atol=0.01, rtol=0)


def test_the_concat_critic_is_an_mlp_on_concatenated_vectors():
    torch.manual_seed(0)
    critic = ConcatCritic(3, 2, hidden_dim=8).double()
    a, b = _randn(4, 3), _randn(5, 2, seed=1)
    weight = torch.cat([critic.of_a.weight, critic.of_b.weight], 1).detach()
    for parameter in critic.parameters():
        parameter.requires_grad_(False)
    expected = [[float(critic.rest(F.linear(torch.cat([x, y]), weight, critic.of_a.bias))) for y in b] for x in a]
    torch.testing.assert_close(critic(a, b), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["concat", "separable", "cross"])
def test_critics_stream_and_learn(kind):
    """Blocks of rows give the same values and the same gradients of the parameters; training finds the partners."""
    torch.manual_seed(0)
    if kind == "cross":
        critic = CrossCritic(8, heads=2, layers=1)
        a, b = _randn(6, 2, 8).float(), _randn(6, 3, 8, seed=1).float()
        a[2, 1] = 0
        score = critic.as_score(num_tokens=5)
    else:
        critic = ConcatCritic(4, hidden_dim=16) if kind == "concat" else SeparableCritic(4, hidden_dim=16, out_dim=8)
        a, b = _randn(6, 4).float(), _randn(6, 4, seed=1).float()
        score = critic.as_score()
    whole, blocks = Scores.from_pairs(a, b, score=score), replace(Scores.from_pairs(a, b, score=score), rows_per_block=2)
    grads = [torch.autograd.grad(info_nce(S).mean(), list(critic.parameters())) for S in (whole, blocks)]
    for g, h in zip(*grads, strict=True):
        torch.testing.assert_close(g, h, atol=1e-6, rtol=1e-4)
    optimizer = torch.optim.Adam(critic.parameters(), 0.02)
    for _ in range(100):
        optimizer.zero_grad()
        info_nce(Scores.from_pairs(a, b, score=score)).mean().backward()
        optimizer.step()
    assert (Scores.from_pairs(a, b, score=score).to_dense().argmax(1) == torch.arange(6)).all()


def test_padding_is_not_looked_at():
    torch.manual_seed(0)
    critic = CrossCritic(8, heads=2, layers=1).eval()
    a, b = _randn(2, 3, 8).float(), _randn(3, 2, 8, seed=1).float()
    padded = torch.cat([b, torch.zeros(3, 4, 8)], 1)
    torch.testing.assert_close(critic(a, padded), critic(a, b))
    assert critic(a, torch.zeros(1, 2, 8)).isfinite().all(), "nothing but padding"


def test_a_learned_temperature_starts_moves_and_is_held():
    scale = Temperature(temperature=0.07, max_scale=100)
    assert scale().item() == pytest.approx(1 / 0.07)
    optimizer = torch.optim.SGD(scale.parameters(), 1.0)
    a = _randn(5, 3).float()
    for _ in range(60):
        optimizer.zero_grad()
        (info_nce(Scores.from_pairs(a, a) * scale()).mean() - scale().log()).backward()
        optimizer.step()
        scale.clamp_scale()
    assert scale().item() == pytest.approx(100), "pushed up for ever, and held"
    optimizer.zero_grad()
    scale().backward()
    optimizer.param_groups[0]["lr"] = 1e-3
    optimizer.step()
    assert scale().item() < 99, "at the bound it still has a gradient, and comes back"
    for wrong in ({"temperature": 0.0}, {"max_scale": -1.0}):
        with pytest.raises(UsageError, match="greater than 0"):
            Temperature(**wrong)


@pytest.mark.parametrize("make", [lambda: rbf(0), lambda: riesz(-1), lambda: riesz(1, 0)])
def test_kernels_refuse_what_makes_no_sense(make):
    with pytest.raises(UsageError, match="greater than 0"):
        make()

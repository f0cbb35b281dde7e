"""Consistency, masked tokens, flows, pairs of sentences, relations, combinations."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.losses import alignment, uniformity
from nearfar.losses.align_uniform import align_uniform
from nearfar.losses.consistency import cutoff_consistency, js_divergence, uda
from nearfar.losses.flow_nll import flow_nll
from nearfar.losses.loss_blending import blend_losses
from nearfar.losses.lre import lre
from nearfar.losses.mlm import mlm
from nearfar.losses.sentence_bert import build_sbert_features, sbert_regression, sbert_softmax


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- consistency ----------------------------------------------------------------------------------


def test_js_divergence_of_two_is_that_of_scipy():
    a, b = _randn(5, 4), _randn(5, 4, seed=1)
    expected = jensenshannon(a.softmax(1).numpy(), b.softmax(1).numpy(), axis=1) ** 2
    torch.testing.assert_close(js_divergence(a, b), torch.tensor(expected))


def test_js_divergence_is_symmetric_and_bounded_where_kl_is_neither():
    """A consensus by KL, as it is sometimes described, has no bound and prefers one copy to another."""
    sure, other = torch.tensor([[300.0, 0.0, 0.0]]), torch.tensor([[0.0, 300.0, 0.0]])
    assert float(js_divergence(sure, other)) == pytest.approx(math.log(2))
    assert float(js_divergence(sure, other, torch.tensor([[0.0, 0.0, 300.0]]))) == pytest.approx(math.log(3))
    kl = lambda p, q: float((p.softmax(1) * (p.log_softmax(1) - q.log_softmax(1))).sum())
    assert kl(sure, other) > 100
    a, b, c = _randn(4, 3), _randn(4, 3, seed=1), _randn(4, 3, seed=2)
    torch.testing.assert_close(js_divergence(a, b, c), js_divergence(c, a, b))
    assert kl(a[:1], b[:1]) != pytest.approx(kl(b[:1], a[:1]), rel=0.01)
    torch.testing.assert_close(js_divergence(a, a, a), torch.zeros(4, dtype=torch.float64))
    assert torch.autograd.gradcheck(js_divergence, tuple(x.requires_grad_() for x in (a, b, c)))
    with pytest.raises(UsageError, match="at least one"):
        js_divergence()


def test_cutoff():
    logits, copies, y = _randn(4, 3), _randn(2, 4, 3, seed=1), torch.tensor([0, 2, -1, 1])
    known = y >= 0
    ce = lambda x: F.cross_entropy(x[known], y[known])
    p = torch.stack([logits, *copies]).softmax(2)
    js = (p * (p / p.mean(0)).log()).sum(2).mean(0).mean()
    torch.testing.assert_close(cutoff_consistency(logits, copies, y, 0.5, 2.0), ce(logits) + 0.5 * (ce(copies[0]) + ce(copies[1])) + 2 * js)
    torch.testing.assert_close(cutoff_consistency(logits, copies[:0], y), ce(logits))


def test_uda():
    logits, augmented = _randn(5, 3).requires_grad_(), _randn(5, 3, seed=1).requires_grad_()
    expected = F.kl_div(augmented.log_softmax(1), logits.detach().softmax(1), reduction="batchmean")
    torch.testing.assert_close(uda(logits, augmented), expected)
    grads = torch.autograd.grad(uda(logits, augmented), (logits, augmented), allow_unused=True)
    assert grads[0] is None, "the sample itself is the target"
    assert grads[1].any()
    assert float(uda(logits, augmented, confidence_threshold=1.01).detach()) == 0
    assert uda(logits, logits).abs() < 1e-12
    sharp = F.kl_div(augmented.log_softmax(1), (logits.detach() / 0.4).softmax(1), reduction="batchmean")
    torch.testing.assert_close(uda(logits, augmented, temperature=0.4), sharp)
    sure = (logits.softmax(1).amax(1) >= 0.6).double()
    assert 0 < sure.sum() < 5
    rows = F.kl_div(augmented.log_softmax(1), logits.detach().softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(uda(logits, augmented, confidence_threshold=0.6), (rows * sure).mean())
    with pytest.raises(UsageError, match="temperature"):
        uda(logits, augmented, temperature=0.0)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_consistency_is_finite(scale):
    a, b = (scale * _randn(3, 4)).float().requires_grad_(), (-scale * _randn(3, 4)).float().requires_grad_()
    for loss in (uda(a, b), js_divergence(a, b).mean(), cutoff_consistency(a, b[None], torch.tensor([0, 1, -1]))):
        assert loss.isfinite()
        assert torch.autograd.grad(loss, b)[0].isfinite().all()


# --- tokens, flows --------------------------------------------------------------------------------


def test_mlm_counts_hidden_places_only():
    logits, tokens = _randn(2, 3, 5), torch.tensor([[1, 4, 0], [2, 2, 3]])
    hidden = torch.tensor([[True, False, False], [False, True, True]])
    expected = [-float(logits[i, t].log_softmax(0)[tokens[i, t]]) for i, t in ((0, 0), (1, 1), (1, 2))]
    assert float(mlm(logits, tokens, hidden)) == pytest.approx(sum(expected) / 3)
    logits.requires_grad_()
    (grad,) = torch.autograd.grad(mlm(logits, tokens, hidden), logits)
    assert not grad[~hidden].any()
    nothing = mlm(logits, tokens, torch.zeros_like(hidden))
    assert float(nothing.detach()) == 0
    assert not torch.autograd.grad(nothing, logits)[0].any()


def test_the_likelihood_of_an_affine_flow_is_that_of_a_gaussian():
    mean, factor = _randn(3), torch.linalg.cholesky(torch.cov(_randn(3, 9, seed=1)))
    u = _randn(7, 3, seed=2)
    z = torch.linalg.solve_triangular(factor, (u - mean).T, upper=False).T
    log_det = -factor.diagonal().log().sum().expand(7)
    expected = -torch.distributions.MultivariateNormal(mean, scale_tril=factor).log_prob(u)
    torch.testing.assert_close(flow_nll(z, log_det), expected)


def test_the_best_affine_flow_whitens_and_reaches_the_entropy():
    u = _randn(4000, 2) @ torch.tensor([[2.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    log_scale = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    shear = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale, shear], max_iter=50, line_search_fn="strong_wolfe")

    def flow() -> tuple[torch.Tensor, torch.Tensor]:
        z = torch.stack([u[:, 0], u[:, 1] + shear * u[:, 0]], 1) * log_scale.exp()
        return z, log_scale.sum().expand(4000)

    def closure():
        optimizer.zero_grad()
        value = flow_nll(*flow()).mean()
        value.backward()
        return value

    optimizer.step(closure)
    z, log_det = (t.detach() for t in flow())
    torch.testing.assert_close(z.T @ z / 4000, torch.eye(2, dtype=torch.float64), atol=1e-4, rtol=0)
    covariance = u.T @ u / 4000
    entropy = 0.5 * float(torch.logdet(2 * math.pi * math.e * covariance))
    assert float(flow_nll(z, log_det).mean()) == pytest.approx(entropy, abs=1e-6)
    assert float(flow_nll(0.5 * z, log_det).mean()) < entropy, "without the determinant shrinking would always pay"
    assert float(flow_nll(0.5 * z, log_det + 2 * math.log(0.5)).mean()) > entropy


# --- sentences, relations -------------------------------------------------------------------------


def test_sbert_classification_and_regression():
    u, v, w, y = _randn(4, 3), _randn(4, 3, seed=1), _randn(3, 9, seed=2), torch.tensor([0, 2, 1, -1])
    features = torch.stack([torch.cat([a, b, (a - b).abs()]) for a, b in zip(u, v, strict=True)])
    torch.testing.assert_close(build_sbert_features(u, v), features)
    torch.testing.assert_close(sbert_softmax(u, v, w, y), F.cross_entropy(features[:3] @ w.T, y[:3]))
    gold = torch.tensor([0.0, 0.4, 0.9, 1.0], dtype=torch.float64)
    torch.testing.assert_close(sbert_regression(u, v, gold), (F.cosine_similarity(u, v) - gold).square())
    assert torch.autograd.gradcheck(
        lambda u, v, w: (sbert_softmax(u, v, w, y), sbert_regression(u, v, gold)), tuple(t.requires_grad_() for t in (u, v, w))
    )
    zero = torch.zeros(2, 3, requires_grad=True)
    loss = sbert_regression(zero, zero, torch.ones(2)).sum() + sbert_softmax(zero, zero, w.detach().float(), y[:2])
    assert torch.autograd.grad(loss, zero)[0].isfinite().all()


def test_lre():
    relation, subject, entities, obj = _randn(3, 2, 2), _randn(3, 2, seed=1), _randn(5, 2, seed=2), torch.tensor([4, 0, 2])
    expected = []
    for i in range(3):
        p = relation[i] @ subject[i]
        weights = [math.exp(-float((p - e).square().sum())) for e in entities]
        expected.append(-math.log(weights[obj[i]] / sum(weights)))
    torch.testing.assert_close(lre(relation, subject, entities, obj), torch.tensor(expected, dtype=torch.float64))
    inputs = tuple(t.requires_grad_() for t in (relation, subject, entities))
    assert torch.autograd.gradcheck(lambda r, s, e: lre(r, s, e, obj), inputs)


def test_lre_learns_a_relation():
    """ "The next of five", on a circle: one matrix does it, and finds the object of every subject."""
    entities = _randn(5, 3).requires_grad_()
    matrix = (0.1 * _randn(3, 3, seed=1)).requires_grad_()
    subject, obj = torch.arange(5), (torch.arange(5) + 1) % 5
    optimizer = torch.optim.Adam([entities, matrix], 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        lre(matrix.expand(5, 3, 3), entities[subject], entities, obj).mean().backward()
        optimizer.step()
    assert (torch.cdist(entities[subject] @ matrix.T, entities).argmin(1) == obj).all()


# --- combinations ---------------------------------------------------------------------------------


def test_align_uniform_is_the_sum_and_needs_both():
    a, b = _randn(6, 3), _randn(6, 3, seed=1)
    torch.testing.assert_close(align_uniform(a, b, 0.3, 1.5, 3.0), alignment(a, b, 1.5) + 0.15 * (uniformity(a, 3.0) + uniformity(b, 3.0)))

    def train(loss) -> tuple[float, float]:
        z = torch.cat([a, b]).requires_grad_()
        optimizer = torch.optim.Adam([z], 0.05)
        for _ in range(150):
            optimizer.zero_grad()
            loss(z[:6], z[6:]).backward()
            optimizer.step()
        return float(alignment(z[:6], z[6:]).detach()), float(uniformity(z[:6]).detach())

    both = train(lambda a, b: align_uniform(a, b, uniformity_weight=0.5))
    octahedron = math.log((24 * math.exp(-4) + 6 * math.exp(-8)) / 30)
    assert both == (pytest.approx(0, abs=1e-6), pytest.approx(octahedron, abs=1e-3))
    alone = train(lambda a, b: uniformity(torch.cat([a, b])))
    assert alone[0] > 0.1, "uniformity alone forgets who is alike"


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.4, 0.0), (0.5, 0.5), (0.6, 1.0), (1.0, 1.0)])
def test_hybrid_moves_from_one_loss_to_the_other(progress, share):
    early, late = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -2.0])
    torch.testing.assert_close(blend_losses(early, late, progress), (1 - share) * early + share * late)
    torch.testing.assert_close(blend_losses(early.sum(), late.sum(), progress), (1 - share) * early.sum() + share * late.sum())
    with pytest.raises(UsageError, match="start < stop"):
        blend_losses(early, late, progress, 0.5, 0.5)

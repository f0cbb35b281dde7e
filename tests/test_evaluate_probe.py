"""The linear probe against scikit-learn's logistic regression; few labels; the online probe."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from torch import nn

from nearfar.core import NearfarError, RandomKey
from nearfar.evaluate import OnlineProbe, choose_penalty, few_label_probe, fit_linear, linear_probe, probe
from nearfar.evaluate.few_labels import draw_labeled_rows
from nearfar.evaluate.input_checks import standardize_columns


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    x, y = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    return x[:1200], y[:1200], x[1200:], y[1200:]


def objective(weight, bias, x, y, C) -> float:
    scores = x @ weight.T + bias
    scores = scores - scores.max(1, keepdims=True)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return log_loss(y, p, labels=np.arange(len(bias))) + (weight**2).sum() / (2 * C * len(x))


@pytest.mark.parametrize("C", [0.01, 1.0, 10.0])
def test_probe_is_scikit_learns_logistic_regression(digits, C):
    x, y = digits[0][:600], digits[1][:600]
    reference = LogisticRegression(C=C, tol=1e-8, max_iter=20000).fit(x.double().numpy(), y.numpy())
    found = fit_linear(x, y, C)
    theirs = objective(reference.coef_, reference.intercept_, x.double().numpy(), y.numpy(), C)
    ours = objective(found.weight.double().numpy(), found.bias.double().numpy(), x.double().numpy(), y.numpy(), C)
    assert found.converged
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert found.loss == pytest.approx(ours, rel=1e-4, abs=1e-6)
    assert np.abs(found.weight.numpy() - reference.coef_).max() < 0.01 * np.abs(reference.coef_).max()
    # A shift common to all classes changes neither model; compare biases without it.
    assert np.allclose(
        found.bias - found.bias.mean(), reference.intercept_ - reference.intercept_.mean(), atol=0.02 * np.abs(reference.intercept_).max()
    )


def test_scaled_accuracy_agrees_with_scikit_learn(digits):
    train_x, train_y, test_x, test_y = digits
    scaler = StandardScaler().fit(train_x.numpy())
    reference = LogisticRegression(C=1.0, tol=1e-6, max_iter=5000).fit(scaler.transform(train_x.numpy()), train_y.numpy())
    found = linear_probe(train_x, train_y, test_x, test_y)
    assert found.accuracy == pytest.approx(reference.score(scaler.transform(test_x.numpy()), test_y.numpy()), abs=2 / 597)
    assert found.train_accuracy == pytest.approx(reference.score(scaler.transform(train_x.numpy()), train_y.numpy()), abs=2 / 1200)
    assert (found.C, found.standardize) == (1.0, True)


def test_more_columns_than_rows_is_solved_exactly(digits):
    g = torch.Generator().manual_seed(0)
    x = torch.relu(digits[0][:60] @ torch.randn(64, 500, generator=g)) / 50
    y = digits[1][:60]
    reference = LogisticRegression(C=1.0, tol=1e-9, max_iter=20000).fit(x.double().numpy(), y.numpy())
    found = fit_linear(x, y)
    assert np.abs(found.weight.numpy() - reference.coef_).max() < 0.01 * np.abs(reference.coef_).max()


def steepest(found, x, y, C) -> float:
    """The largest entry of the gradient in float64, in coordinates in which one class's share of the Hessian at the solution is 1."""
    w, b = found.weight.double().requires_grad_(), found.bias.double()
    loss = nn.functional.cross_entropy(x @ w.T + b, y) + w.square().sum() / (2 * C * len(x))
    (gradient,) = torch.autograd.grad(loss, w)
    p = (x @ w.detach().T + b).softmax(1)
    centred = x - x.mean(0)
    hessian = (centred * (p * (1 - p)).sum(1, keepdim=True) / 2).T @ centred / len(x)
    ridge = (1 / (C * len(x)) + 1e-6 * hessian.trace()) * torch.eye(x.shape[1], dtype=torch.float64)
    return float(torch.linalg.solve_triangular(torch.linalg.cholesky(hessian + ridge), gradient.T, upper=False).abs().max())


@pytest.mark.parametrize("unit", [2.0**-10, 1.0, 2.0**10])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e3, 1e6])
def test_converged_means_that_the_gradient_is_small_in_any_units(digits, C, unit):
    x, y = digits[0] * unit, digits[1]
    found = fit_linear(x, y, C / unit**2)
    assert found.converged == (steepest(found, x.double(), y, C / unit**2) < 2e-3 * found.loss**0.5)
    assert found.converged or C == 1e6, "where the loss is 1e-7, float32 cannot tell"


def test_a_search_that_its_limits_end_has_not_converged(digits, monkeypatch):
    class Hasty(torch.optim.LBFGS):
        def __init__(self, params, **how):
            super().__init__(params, **how | {"max_eval": 5})

    monkeypatch.setattr(probe, "MAX_ROUNDS", 1)
    assert not fit_linear(*digits[:2]).converged
    monkeypatch.setattr(torch.optim, "LBFGS", Hasty)
    found = fit_linear(*digits[:2])
    assert found.iterations < 5
    assert not found.converged


def test_probes_refuse_what_is_no_number(digits):
    broken = digits[0].clone()
    broken[3, 5] = torch.nan
    with pytest.raises(NearfarError, match="1 of 1200 rows hold NaN or infinity"):
        fit_linear(broken, digits[1])
    with pytest.raises(NearfarError, match="1 of 1200 rows hold NaN or infinity"):
        fit_linear(*digits[:2]).predict(broken)


def test_standardising_spares_constant_columns():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 3, generator=g) * torch.tensor([1.0, 100.0, 1e-4]) + torch.tensor([0.0, 5.0, 0.01])
    x = torch.cat([x, torch.full((1000, 1), 0.1), torch.zeros(1000, 1)], dim=1)
    (scaled,) = standardize_columns(x)
    assert torch.allclose(scaled[:, :3].std(0, correction=0), torch.ones(3), atol=1e-3)
    assert scaled[:, 3:].abs().max() < 1e-6


def test_labels_may_be_any_integers_and_test_may_know_more_classes(digits):
    train_x, train_y, test_x, test_y = digits
    plain = linear_probe(train_x, train_y, test_x, test_y)
    assert linear_probe(train_x, train_y * 5 - 20, test_x, test_y * 5 - 20) == plain
    without_nine = train_y != 9
    found = linear_probe(train_x[without_nine], train_y[without_nine], test_x, test_y)
    assert 0.7 < found.accuracy <= float((test_y != 9).double().mean())


def test_collapsed_features_are_at_chance(digits):
    _, train_y, _, test_y = digits
    found = linear_probe(torch.ones(1200, 8), train_y, torch.ones(597, 8), test_y)
    assert found.accuracy < 0.15


def test_draws_hold_equally_many_of_each_class_and_depend_on_the_key_alone(digits):
    labels = digits[1].numpy()
    first, second = (draw_labeled_rows(labels, 5, RandomKey(3)("few labels", i)) for i in (0, 1))
    assert np.bincount(labels[first]).tolist() == [5] * 10
    assert len(np.unique(first)) == 50
    assert not np.array_equal(first, second)
    assert np.array_equal(first, draw_labeled_rows(labels, 5, RandomKey(3)("few labels", 0)))


def test_few_labels_is_the_mean_over_probes_on_the_draws(digits):
    train_x, train_y, test_x, test_y = digits
    found = few_label_probe(train_x, train_y, test_x, test_y, per_class=5, draws=3, rng_key=RandomKey(1))
    scaled, scaled_test = standardize_columns(train_x, test_x)
    expected = []
    for i in range(3):
        chosen = draw_labeled_rows(train_y.numpy(), 5, RandomKey(1)("few labels", i))
        model = LogisticRegression(C=1.0, tol=1e-7, max_iter=5000).fit(scaled[chosen].numpy(), train_y[chosen].numpy())
        expected.append(model.score(scaled_test.numpy(), test_y.numpy()))
    assert found.accuracies == pytest.approx(expected, abs=2 / 597)
    assert found.mean == pytest.approx(np.mean(found.accuracies))
    assert found.std == pytest.approx(np.std(found.accuracies, ddof=1))
    assert found == few_label_probe(
        train_x.numpy(), train_y.numpy(), test_x.numpy(), test_y.numpy(), per_class=5, draws=3, rng_key=RandomKey(1)
    )


def test_a_rare_class_gives_all_it_has(digits):
    train_x, train_y, test_x, test_y = digits
    keep = torch.cat([(train_y != 4).nonzero()[:, 0], (train_y == 4).nonzero()[:2, 0]])
    found = few_label_probe(train_x[keep], train_y[keep], test_x, test_y, per_class=5, draws=2, rng_key=RandomKey(0))
    assert found.short_classes == 1
    assert np.bincount(train_y[keep].numpy()[draw_labeled_rows(train_y[keep].numpy(), 5, RandomKey(0))]).tolist() == [
        5,
        5,
        5,
        5,
        2,
        5,
        5,
        5,
        5,
        5,
    ]


def test_online_probe_learns_without_touching_the_encoder(digits):
    train_x, train_y, test_x, test_y = digits
    torch.manual_seed(0)
    encoder = nn.Linear(64, 32)
    probe = OnlineProbe(32, 10)
    first = probe.learn(encoder(train_x), train_y)
    for _ in range(60):
        last = probe.learn(encoder(train_x), train_y)
    assert encoder.weight.grad is None
    assert first["probe_loss"] == pytest.approx(np.log(10), rel=1e-5)
    assert last["probe_accuracy"] > 0.85
    probe.eval()
    assert (probe(encoder(test_x)).argmax(1) == test_y).float().mean() > 0.8


def test_the_penalty_is_chosen_on_held_out_training_rows(digits):
    """Among many columns of noise a strong penalty is better; and what is found is what a search over the same fifth finds."""
    x, y = digits[0], digits[1]
    x = torch.cat([x, torch.randn(len(x), 800, generator=torch.Generator().manual_seed(0))], 1)
    order = RandomKey(3)("held out").permutation(len(x))
    held, kept = order[:240], order[240:]
    accuracy = {C: linear_probe(x[kept], y[kept], x[held], y[held], C).accuracy for C in (1e-3, 0.1, 100.0)}
    assert accuracy[1e-3] > accuracy[100.0] + 0.01
    assert choose_penalty(x, y, RandomKey(3), (0.1, 100.0, 1e-3)) == max(accuracy, key=accuracy.__getitem__)
    with pytest.raises(NearfarError, match="at least 5 rows are needed"):
        choose_penalty(x[:4], y[:4], RandomKey(3))


def test_the_penalty_is_not_chosen_on_fitted_rows(digits):
    """With many wrong labels and columns of noise, a weak penalty is best on the rows it was fitted on and worse on others."""
    x, y = digits[0][:200], digits[1][:200].clone()
    random = torch.Generator().manual_seed(0)
    x = torch.cat([x, torch.randn(len(x), 50, generator=random)], 1)
    wrong = torch.rand(len(y), generator=random) < 0.25
    y[wrong] = torch.randint(10, (int(wrong.sum()),), generator=random)
    strong, weak = (linear_probe(x, y, x, y, C).accuracy for C in (0.01, 1.0))
    assert strong < weak == 1.0
    assert choose_penalty(x, y, RandomKey(3), (0.01, 1.0)) == 0.01


def test_a_test_row_is_scored_independently_of_other_test_rows(digits):
    """Features are scaled by the training split alone: rows far away in the test split change nothing."""
    train, test_x, test_y = (digits[0][:500], digits[1][:500]), digits[2][:400], digits[3][:400]
    far = 100 * test_x[:200] + 1000
    parts = [(test_x[200:], test_y[200:]), (far, test_y[:200]), (torch.cat([far, test_x[200:]]), test_y)]
    near, distant, both = (linear_probe(*train, *part, C=0.01) for part in parts)
    assert both.accuracy == pytest.approx((near.accuracy + distant.accuracy) / 2)
    assert (both.train_accuracy, both.iterations) == (near.train_accuracy, near.iterations)
    near, distant, both = (few_label_probe(*train, *part, draws=2, rng_key=RandomKey(1)) for part in parts)
    assert both.mean == pytest.approx((near.mean + distant.mean) / 2)

"""Whitening against numpy, on full, few, constant and dependent data; and how isotropy is measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import nearfar
from nearfar.core import NearfarError, Net, RandomKey, UsageError
from nearfar.evaluate.geometry import effective_rank
from nearfar.evaluate.isotropy import cosine_moments, measure_isotropy, partition_isotropy
from nearfar.heads.whitening import Whiten, fit_whitening


def cloud(n: int, d: int, seed: int = 0, cone: float = 0.0) -> torch.Tensor:
    """Correlated Gaussian rows; `cone` shifts all of them into one direction."""
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + cone * rng.normal(size=d), dtype=torch.float32)


def covariance(x: torch.Tensor) -> np.ndarray:
    return np.cov(x.double().numpy().T)


# --- whitening --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 8, 3, 1])
def test_white_rows_have_mean_zero_and_covariance_one(k):
    head = Whiten(8, k)
    x = cloud(500, 8, cone=5)
    head.fit(x)
    white = head(x)
    assert white.shape == (500, k or 8)
    assert white.mean(0).abs().max() < 1e-4
    np.testing.assert_allclose(np.atleast_2d(covariance(white)), np.eye(k or 8), atol=1e-4)


def test_it_is_numpys_and_keeps_the_directions_of_largest_variance():
    x = cloud(300, 6, seed=1)
    mean, weight = fit_whitening(x.double(), 4)
    u, s, _ = np.linalg.svd(np.cov(x.double().numpy().T))
    expected = u[:, :4] / np.sqrt(s[:4])
    expected *= np.sign(expected[np.abs(expected).argmax(0), np.arange(4)])
    np.testing.assert_allclose(weight, expected, atol=1e-8)
    np.testing.assert_allclose(mean, x.double().numpy().mean(0), atol=1e-12)


def test_few_rows_constant_and_dependent_columns_are_safe():
    few = cloud(5, 16, seed=2)
    mean, weight = fit_whitening(few)
    white = (few - mean) @ weight
    np.testing.assert_allclose(covariance(white), np.diag([1.0] * 4 + [0.0] * 12), atol=1e-3)

    x = cloud(200, 6, seed=3)
    x[:, 2] = 1e3
    x[:, 4] = 2 * x[:, 1] - x[:, 0]
    head = Whiten(6)
    head.fit(x)
    assert torch.isfinite(head.weight).all()
    np.testing.assert_allclose(covariance(head(x)), np.diag([1.0] * 4 + [0.0] * 2), atol=1e-3)
    assert head(x)[:, 4:].abs().max() == 0

    equal = torch.full((10, 3), 0.1)
    head = Whiten(3)
    head.fit(equal)
    assert head(equal).eq(0).all(), "rows that do not vary have nothing to whiten"


def test_half_precision_embeddings_are_fitted_and_whitened_in_float32():
    x = cloud(400, 4, seed=5, cone=3).bfloat16()
    head = Whiten(4)
    head.fit(x)
    assert head(x).dtype == torch.float32
    np.testing.assert_allclose(covariance(head(x)), np.eye(4), atol=1e-3)


def test_one_matrix_for_one_set_of_rows():
    x = cloud(100, 5, seed=4)
    order = torch.from_numpy(np.random.default_rng(0).permutation(100))
    for a, b in zip(fit_whitening(x), fit_whitening(x[order]), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_it_travels_with_a_net_and_has_nothing_to_train():
    net, other = (Net(encoder=nn.Linear(4, 6), head=Whiten(6, 2)) for _ in range(2))
    x = cloud(50, 6)
    net.head.fit(x)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net.head(x), other.head(x))
    assert not list(net.head.parameters())
    assert net.head.dim == 2


def test_before_the_fit_it_passes_the_first_coordinates_on():
    x = cloud(5, 4)
    assert torch.equal(Whiten(4)(x), x)
    assert torch.equal(Whiten(4, 2)(x), x[:, :2])


def test_what_cannot_be_whitened_is_said():
    with pytest.raises(UsageError, match="at least 2 rows, got 1"):
        fit_whitening(torch.ones(1, 3))
    with pytest.raises(UsageError, match="between 1 and the width 3, got 4"):
        fit_whitening(cloud(9, 3), 4)
    with pytest.raises(UsageError, match="between 1 and the width 3, got 0"):
        Whiten(3, 0)
    with pytest.raises(UsageError, match="width 3, got 4"):
        Whiten(3).fit(cloud(9, 4))
    with pytest.raises(UsageError, match="NaN"):
        fit_whitening(torch.full((4, 3), float("nan")))


# --- isotropy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [30, 4])
def test_cosine_moments_are_those_of_all_pairs(n):
    x = cloud(n, 7, cone=2)
    u = (x / x.norm(dim=1, keepdim=True)).double().numpy()
    pairs = np.array([u[i] @ u[j] for i in range(n) for j in range(n) if i != j])
    mean, std = cosine_moments(x)
    assert mean == pytest.approx(pairs.mean(), abs=1e-6)
    assert std == pytest.approx(pairs.std(), abs=1e-6)


def test_the_exact_mean_is_what_random_pairs_estimate():
    x = cloud(2000, 16, cone=1)
    a, b = (RandomKey(0)(side).integers(np.arange(20_000), 2000) for side in "ab")
    a, b = a[a != b], b[a != b]
    sampled = torch.nn.functional.cosine_similarity(x[a], x[b])
    mean, std = cosine_moments(x)
    assert float(sampled.mean()) == pytest.approx(mean, abs=4 * std / 20_000**0.5 + 0.01)


def test_partition_isotropy_against_a_loop():
    x = cloud(40, 5, seed=7) / 3
    _, _, directions = np.linalg.svd(x.double().numpy())
    z = [np.exp(x.double().numpy() @ (sign * c)).sum() for c in directions for sign in (1, -1)]
    assert partition_isotropy(x) == pytest.approx(min(z) / max(z), rel=1e-5)
    assert partition_isotropy(1e4 * x) == pytest.approx(0, abs=1e-6), "no overflow"


def test_a_cone_is_seen_and_whitening_opens_it():
    cone = cloud(2000, 12, cone=20)
    head = Whiten(12)
    head.fit(cone)
    before, after = measure_isotropy(torch.nn.functional.normalize(cone)), measure_isotropy(torch.nn.functional.normalize(head(cone)))
    assert before.mean_cosine > 0.8
    assert abs(after.mean_cosine) < 0.01
    assert after.std_cosine == pytest.approx(12**-0.5, rel=0.1)
    assert after.partition_isotropy > 0.9 > before.partition_isotropy
    assert after.first_component_share == pytest.approx(1 / 12, rel=0.2)
    assert after.effective_rank == pytest.approx(12, abs=0.1)
    assert before.effective_rank == effective_rank(torch.nn.functional.normalize(cone))


def test_one_row_has_no_pairs():
    with pytest.raises(NearfarError, match="at least 2 rows"):
        cosine_moments(torch.ones(1, 3))


# --- the recipe ---------------------------------------------------------------------------------------------------


def test_a_run_without_steps_whitens_the_training_sentences(tmp_path):
    texts = [f"Sentence {i} compares {i * 7 % 101} apples with {i * i % 89} pears of {i % 13} colors." for i in range(600)]
    run = nearfar.fit("bert-whitening", texts, preset="tiny", out=tmp_path / "run")
    train = run.inputs.load_splits(texts, run.config).train
    covariance = torch.cov(run.encode(train).T)
    assert covariance.shape == (64, 64)
    assert (covariance - torch.eye(64)).abs().max() < 1e-3
    frozen = run.build_untrained().encode(train)  # before the fit: the first k coordinates of the encoder's own vectors
    assert (torch.cov(frozen.T) - torch.eye(64)).abs().max() > 0.1
    assert torch.equal(nearfar.load(tmp_path / "run").encode(train), run.encode(train))


def test_a_closed_form_takes_no_steps_and_other_recipes_take_some(tmp_path):
    with pytest.raises(nearfar.UsageError, match="closed form"):
        nearfar.fit("bert-whitening", preset="tiny", steps=3, out=tmp_path / "run")
    with pytest.raises(nearfar.UsageError, match="--steps must be at least 1"):
        nearfar.fit("simclr", preset="tiny", steps=0, out=tmp_path / "other")

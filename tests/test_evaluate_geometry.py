"""Known answers of rank, spectrum and spread; maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from nearfar.core import RandomKey, UsageError
from nearfar.evaluate import effective_rank, project_to_2d, spectrum, spread
from nearfar.evaluate.geometry import singular_values


def orthonormal(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q.float()


@pytest.mark.parametrize(("n", "d"), [(50, 8), (8, 8), (2000, 32)])
def test_equal_singular_values_have_full_rank(n, d):
    assert effective_rank(orthonormal(n, d) * 7) == pytest.approx(d, rel=1e-5)


def test_rows_on_a_line_have_rank_one_and_so_have_equal_rows():
    direction = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    assert effective_rank(torch.linspace(-2, 3, 40)[:, None] * direction) == pytest.approx(1, abs=1e-3)
    assert effective_rank(direction.expand(40, 16)) == pytest.approx(1, abs=1e-3)


def test_two_unequal_directions_have_the_rank_of_their_entropy():
    x = orthonormal(30, 2) * torch.tensor([3.0, 1.0])
    assert effective_rank(x) == pytest.approx(np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)), rel=1e-5)


@given(st.integers(2, 40), st.integers(1, 40), st.integers(0, 99))
def test_singular_values_are_those_of_an_svd_and_rank_is_bounded(n, d, seed):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(singular_values(x), torch.linalg.svdvals(x.double()), atol=1e-5)
    assert 1 - 1e-6 <= effective_rank(x) <= min(n, d) + 1e-6


def test_rank_and_spread_do_not_depend_on_scale_or_rotation():
    x = torch.randn(200, 12, generator=torch.Generator().manual_seed(1)) * torch.arange(1, 13)
    turn = orthonormal(12, 12)
    assert effective_rank(x @ turn * 100) == pytest.approx(effective_rank(x), rel=1e-4)
    assert spread(x * 100) == pytest.approx(spread(x), rel=1e-5)


def test_spectrum_starts_at_one_falls_and_ignores_the_mean():
    x = torch.randn(300, 10, generator=torch.Generator().manual_seed(2)) * torch.arange(1, 11)
    found = spectrum(x + 50)
    explained = PCA().fit(x.numpy()).singular_values_
    assert found[0] == 1
    assert np.allclose(found.numpy(), explained / explained[0], atol=1e-4)
    assert (spectrum(torch.ones(5, 3)) == 0).all()


def test_spread_tells_collapse_from_health():
    g = torch.Generator().manual_seed(3)
    healthy = torch.randn(4000, 128, generator=g)
    assert spread(healthy) == pytest.approx(1, abs=0.02)
    assert spread(torch.randn(1, 128, generator=g) + 1e-4 * healthy) < 1e-3
    assert spread(torch.ones(10, 4)) == 0


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_a_map_is_repeatable_and_keeps_neighbours(method):
    digits = load_digits()
    x = digits.data.astype(np.float32)
    found = project_to_2d(x, method, rng_key=RandomKey(0), max_points=300)
    again = project_to_2d(torch.tensor(x), method, rng_key=RandomKey(0), max_points=300)
    assert np.array_equal(found.points, again.points)
    assert found.points.shape == (300, 2)
    assert len(np.unique(found.rows)) == 300
    y = digits.target[found.rows]
    own = KNeighborsClassifier(5).fit(found.points, y).score(found.points, y)
    assert own > (0.9 if method == "tsne" else 0.5)
    assert not np.array_equal(project_to_2d(x, method, rng_key=RandomKey(1), max_points=300).rows, found.rows)


def test_pca_map_is_scikit_learns_up_to_sign():
    x = load_digits().data[:200].astype(np.float32)
    found = project_to_2d(x, "pca", rng_key=RandomKey(0))
    reference = PCA(2).fit_transform(x)
    assert np.allclose(np.abs(found.points), np.abs(reference), atol=1e-2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("d", [1, 2, 60])
def test_small_maps_are_drawn(n, d):
    found = project_to_2d(torch.randn(n, d, generator=torch.Generator().manual_seed(n)), "tsne", rng_key=RandomKey(0))
    assert found.points.shape == (n, 2)
    assert np.isfinite(found.points).all()
    assert found.method == ("t-SNE" if n > 3 else "PCA")


def test_an_unknown_map_is_a_usage_error():
    with pytest.raises(UsageError, match="choose tsne or pca"):
        project_to_2d(torch.ones(3, 2), "umap", rng_key=RandomKey(0))

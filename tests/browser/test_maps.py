"""All installed map methods, as the explorer calls them. Their imports take longer than the maps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from nearfar.server.explorer import maps


@pytest.mark.parametrize("method", maps.list_map_methods())
def test_maps_separate_clusters_and_report_progress(method):
    cloud = np.arange(300) * 3 // 300
    x = (np.random.default_rng(0).normal(size=(300, 8)) + 20 * np.eye(3, 8)[cloud]).astype(np.float32)
    reported: list[float] = []
    points = maps.MapProcess()(x, method, 0, reported.append)
    nearest = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points)[1][:, 1:]
    assert (cloud[nearest] == cloud[:, None]).mean() > 0.95
    assert reported == sorted(reported)
    assert bool(reported) == (method in maps.ITERATIONS)
    assert np.abs(points).max() == pytest.approx(1)
